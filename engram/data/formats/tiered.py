"""tieredImageNet as its authors publish it (Ren et al., 2018).

- ``{split}_images_png.pkl``: a list of PNG files as byte arrays, or
- ``{split}_images.npz`` with ``images`` (n, 84, 84, 3), as the published script unpacks the PNG files;
- with either, ``{split}_labels.pkl``: a dict with ``label_specific`` (n,), the class of each image, and
  ``label_specific_str``, the names of the classes. ``labels`` is read where ``label_specific`` is missing.

The published script unpacks with OpenCV, so the npz is in the order blue, green, red: it is turned round, and both
forms give the same store. Images stay in their files until they are needed: those of training alone are 9.5 GB.
"""

from __future__ import annotations

import math
import os
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from engram.data.formats.form import Form, SplitSource, split_files
from engram.data.formats.images import decode_image, fit_array
from engram.data.formats.lazy_arrays import LazyArray, OpenFile, Span
from engram.data.formats.unpickling import load_dict, load_pickle
from engram.errors import EngramError
from engram.files import UNPACKING, check_zip, open_regular

IMAGE_SHAPE = (3, 84, 84)
ZIP_LOCAL_HEADER = struct.Struct("<26xHH")  # the lengths of name and extra field, which stand before the data
TIMES = 20
"""photographs are not packed to less than one part in as many"""
ReadImage = Callable[[int], np.ndarray]


def find_png(root: Path) -> Form | None:
    """``{split}_images_png.pkl`` with ``{split}_labels.pkl``, or None."""
    return _find(root, "{split}_images_png.pkl", "pickled PNG files", _open_png)


def find_npz(root: Path) -> Form | None:
    """``{split}_images.npz`` with ``{split}_labels.pkl``, or None."""
    return _find(root, "{split}_images.npz", "npz arrays", _open_npz)


def _find(root: Path, pattern: str, name: str, open_images: Callable[[Path], tuple[int, ReadImage]]) -> Form | None:
    images = split_files(root, pattern)
    if not images:
        return None
    labels = {split: root / f"{split}_labels.pkl" for split in images}
    files = (*images.values(), *(path for path in labels.values() if path.is_file()))

    def read(split: str) -> SplitSource:
        return _read_split(images[split], labels[split], open_images)

    return Form(name, root, files, tuple(images), read)


def _read_split(images: Path, labels: Path, open_images: Callable[[Path], tuple[int, ReadImage]]) -> SplitSource:
    classes, class_names = _read_labels(labels, images)
    order = np.argsort(classes, kind="stable")
    kinds, counts = np.unique(classes, return_counts=True)
    rows = np.split(order, np.cumsum(counts)[:-1])
    opened: list[ReadImage] = []  # the images are opened when the first class is read, and then stay open

    def read_class(index: int) -> Iterator[np.ndarray]:
        if not opened:
            count, read_image = open_images(images)
            if count != len(classes):
                raise EngramError(f"{images} holds {count} images but {labels} labels {len(classes)}: fetch both again")
            opened.append(read_image)
        return map(opened[0], rows[index].tolist())

    names = tuple(_name(int(kind), class_names) for kind in kinds)
    if len(set(names)) != len(names):  # class names may repeat in WordNet; the number tells them apart
        names = tuple(f"{name} #{kind}" for name, kind in zip(names, kinds.tolist(), strict=True))
    return SplitSource(names, tuple(counts.tolist()), read_class, IMAGE_SHAPE)


def _name(kind: int, class_names: Sequence[Any]) -> str:
    if not 0 <= kind < len(class_names):
        return f"class{kind:03d}"
    name = class_names[kind]
    return name.decode("latin1") if isinstance(name, bytes) else str(name)


def _read_labels(path: Path, images: Path) -> tuple[np.ndarray, Sequence[Any]]:
    if not path.is_file():
        raise EngramError(f"{images} has no {path.name} beside it: fetch the labels too")
    content = load_dict(path)
    key = next((key for key in ("label_specific", "labels") if key in content), None)
    if key is None:
        raise EngramError(
            f"{path} has the keys {sorted(map(str, content))} where 'label_specific' is needed: fetch it again"
        )
    classes = np.asarray(content[key])
    if classes.ndim != 1 or classes.dtype.kind not in "iu" or not len(classes):
        raise EngramError(
            f"'{key}' of {path} is {classes.dtype} {classes.shape} where one class number per image is needed"
        )
    return classes.astype(np.int64), list(content.get("label_specific_str", ()))


def _open_png(path: Path) -> tuple[int, ReadImage]:
    images = load_pickle(path)
    if not isinstance(images, list | tuple | np.ndarray):
        raise EngramError(f"{path} holds a {type(images).__name__} where a list of PNG files is needed: fetch it again")

    def read_image(row: int) -> np.ndarray:
        image = images[row]
        if isinstance(image, Span) and not isinstance(image, LazyArray):
            image = image.read()
        data = image if isinstance(image, bytes) else np.asarray(image, dtype=np.uint8).tobytes()
        return decode_image(data, f"number {row} of {path}", IMAGE_SHAPE)

    return len(images), read_image


def _open_npz(path: Path) -> tuple[int, ReadImage]:
    try:
        images = _map_or_load(path)
    except (OSError, ValueError, KeyError, EOFError, TypeError, MemoryError, OverflowError, *UNPACKING) as error:
        raise EngramError(f"{path} cannot be read as an npz with 'images' ({error}): fetch it again") from error
    if len(images.shape) != 4 or images.shape[3] != 3:
        raise EngramError(
            f"'images' of {path} has the shape {images.shape} where (n, 84, 84, 3) is needed: fetch it again"
        )

    def read_image(row: int) -> np.ndarray:
        return fit_array(images[row][:, :, ::-1], f"image {row} of {path}", IMAGE_SHAPE)

    return len(images), read_image


def _map_or_load(path: Path) -> np.ndarray | LazyArray:
    """``images`` of an npz, read row by row: from where the zip stores them as they are, else from an unpacked copy."""
    with open_regular(path) as stream:
        check_zip(stream, times=TIMES)
        with zipfile.ZipFile(stream) as archive:
            member = archive.getinfo("images.npy")
            with archive.open(member) as content:
                shape, fortran, dtype = _header(content)
        if min(shape, default=0) < 0 or dtype.kind not in "iuf":
            raise ValueError(f"an array of {dtype} {shape}")
        if math.prod(shape) * dtype.itemsize > member.file_size:
            raise ValueError(f"an array of {shape} in {member.file_size} bytes")
        if fortran:
            stream.seek(0)
            return np.asarray(np.load(stream, allow_pickle=False)["images"])
        if member.compress_type != zipfile.ZIP_STORED:
            return _unpacked(stream, member, shape, dtype)
        stream.seek(member.header_offset)
        name_length, extra_length = ZIP_LOCAL_HEADER.unpack(stream.read(ZIP_LOCAL_HEADER.size))
        stream.seek(name_length + extra_length, 1)
        _header(stream)
        return LazyArray(OpenFile(stream), stream.tell(), shape, dtype)


def _unpacked(stream: IO[bytes], member: zipfile.ZipInfo, shape: tuple[int, ...], dtype: np.dtype[Any]) -> LazyArray:
    """In a file without a name that is gone with the last who reads it; TMPDIR says where, by itself on a disk."""
    where = os.environ.get("TMPDIR") or ("/var/tmp" if os.path.isdir("/var/tmp") else None)
    with tempfile.TemporaryFile(dir=where) as copy, zipfile.ZipFile(stream) as archive, archive.open(member) as content:
        _header(content)
        shutil.copyfileobj(content, copy, 2**20)
        copy.flush()
        return LazyArray(OpenFile(copy), 0, shape, dtype)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type that an array on disk announces."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"array format {version}")
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    found: tuple[tuple[int, ...], bool, np.dtype[Any]] = reader(stream)
    return found
