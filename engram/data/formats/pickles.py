"""miniImageNet as pickles.

- ``mini-imagenet-cache-{train,val,test}.pkl``: a dict with ``image_data`` (n, 84, 84, 3) and ``class_dict``, which
  gives the rows of each class (Ren et al., 2018, and many since).
- ``mini_imagenet_{train,val,test}.pickle``, also below ``compacted_datasets/``: a dict from class to its images
  (Garcia & Bruna, 2018; Kim et al., 2019).

Classes are sorted by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engram.data.formats.form import Form, SplitReading, SplitSource, split_files
from engram.data.formats.images import fit_array
from engram.data.formats.lazy_arrays import LazyArray
from engram.data.formats.unpickling import load_dict
from engram.errors import EngramError

MINI_SHAPE = (3, 84, 84)


def find_cache(root: Path) -> Form | None:
    """``mini-imagenet-cache-{split}.pkl``, or None."""
    return _form(root, ("mini-imagenet-cache-{split}.pkl",), "pickled cache files", _read_cache)


def find_class_dict(root: Path) -> Form | None:
    """``mini_imagenet_{split}.pickle``, or None."""
    patterns = ("mini_imagenet_{split}.pickle", "compacted_datasets/mini_imagenet_{split}.pickle")
    return _form(root, patterns, "pickled class dictionaries", _read_class_dict)


def _form(root: Path, patterns: Sequence[str], name: str, read: Callable[[Path], SplitSource]) -> Form | None:
    files = next(filter(None, (split_files(root, pattern) for pattern in patterns)), None)
    if files is None:
        return None
    return Form(name, root, tuple(files.values()), tuple(files), lambda split: SplitReading(read(files[split])))


def _read_cache(path: Path) -> SplitSource:
    content = load_dict(path, lazy=True)
    if "image_data" not in content or "class_dict" not in content:
        raise EngramError(
            f"{path} has the keys {sorted(map(str, content))} where 'image_data' and 'class_dict' are needed"
        )
    images = (
        content["image_data"] if isinstance(content["image_data"], LazyArray) else np.asarray(content["image_data"])
    )
    try:
        classes = content["class_dict"].items()
        rows = {_class_name(key): np.asarray(value, dtype=np.int64).ravel() for key, value in classes}
    except (AttributeError, TypeError, ValueError) as error:
        raise EngramError(
            f"'class_dict' of {path} does not give the image numbers of each class: fetch it again"
        ) from error
    largest = max((int(value.max()) for value in rows.values() if len(value)), default=-1)
    smallest = min((int(value.min()) for value in rows.values() if len(value)), default=0)
    if largest >= len(images) or smallest < 0:
        wrong = largest if largest >= len(images) else smallest
        raise EngramError(f"{path} names image {wrong} but holds {len(images)} images: fetch it again")
    return _source(
        path,
        {name: len(value) for name, value in rows.items()},
        lambda name: map(images.__getitem__, rows[name].tolist()),
    )


def _read_class_dict(path: Path) -> SplitSource:
    content = {_class_name(key): value for key, value in load_dict(path, lazy=True).items()}
    for name, images in content.items():
        if not isinstance(images, list | tuple | np.ndarray | LazyArray):
            raise EngramError(
                f"class '{name}' of {path} is a {type(images).__name__} where images are needed: fetch it again"
            )
    return _source(path, {name: len(images) for name, images in content.items()}, content.__getitem__)


def _class_name(key: Any) -> str:
    """Sortable text: class 9 comes before class 10."""
    if isinstance(key, bytes):
        return key.decode("latin1")
    return f"{int(key):04d}" if isinstance(key, int | np.integer) else str(key)


def _source(path: Path, counts: Mapping[str, int], images_of: Callable[[str], Iterable[Any]]) -> SplitSource:
    names = sorted(counts)

    def read_class(index: int) -> Iterator[np.ndarray]:
        for number, image in enumerate(images_of(names[index])):
            yield fit_array(image, f"image {number} of class '{names[index]}' in {path}", MINI_SHAPE)

    return SplitSource(tuple(names), tuple(counts[name] for name in names), read_class, MINI_SHAPE)
