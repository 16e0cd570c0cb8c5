"""miniImageNet in its published forms.

Images and CSV lists, in the split of Ravi & Larochelle (2017): a tree ``images/<name>.jpg`` with ``train.csv``,
``val.csv``, ``test.csv`` (columns filename,label), or zips whose names hold "mini" and "imagenet", with the same files
inside; the lists may lie in any of the zips or beside them. The lists decide. A class has the images its list names, in
the list's order; images no list names are left out. An image that is listed but missing is an error in both forms, so a
store never holds fewer images than its list says. A partial set is read by giving it shorter lists.

Pickles:

- ``mini-imagenet-cache-{train,val,test}.pkl``: a dict with ``image_data`` (n, 84, 84, 3) and ``class_dict``, which
  gives the rows of each class (Ren et al., 2018, and many since).
- ``mini_imagenet_{train,val,test}.pickle``, also below ``compacted_datasets/``: a dict from class to its images
  (Garcia & Bruna, 2018; Kim et al., 2019).

Classes are sorted by name in all of them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from engram.data.formats.archives import ZipSet
from engram.data.formats.form import SPLITS, Form, SplitSource, names_in, split_files
from engram.data.formats.images import decode_image, fit_array
from engram.data.formats.lazy_arrays import LazyArray
from engram.data.formats.unpickling import load_dict
from engram.errors import EngramError
from engram.files import read_text

IMAGE_SHAPE = (3, 84, 84)


@dataclass(frozen=True)
class ListedImage:
    line: int
    filename: str
    label: str


def find_tree(root: Path) -> Form | None:
    """``images/`` beside at least one list, or None."""
    lists = split_files(root, "{split}.csv")
    images = root / "images"
    if not lists or not images.is_dir():
        return None

    def read(split: str) -> SplitSource:
        rows = _parse_list(_read_text(lists[split]), str(lists[split]))
        _check_all_there(rows, set(names_in(images)), str(lists[split]), str(images))
        return _listed(rows, lambda name: decode_image(images / name, str(images / name), IMAGE_SHAPE))

    return Form("images/ with CSV lists", root, (*lists.values(), images), tuple(lists), read)


def find_zips(root: Path) -> Form | None:
    """Zips of miniImageNet, or None. Which lists they hold shows when a split is read."""
    zips = tuple(sorted(path for path in root.glob("*.zip") if _is_mini_name(path.name)))
    if not zips:
        return None
    lists = split_files(root, "{split}.csv")

    def read(split: str) -> SplitSource:
        members = ZipSet(zips)
        paths = {name: PurePosixPath(name) for name in members.names}
        places = {path.name: name for name, path in paths.items() if path.parent.name == "images"}
        text, list_name = _list_in_zips(split, lists, members, root)
        rows = _parse_list(text, list_name)
        zip_names = ", ".join(path.name for path in zips)
        _check_all_there(rows, places.keys(), list_name, f"images/ of {zip_names} in {root}")

        def read_image(name: str) -> np.ndarray:
            member = places[name]
            return decode_image(members.read(member), members.label(member), IMAGE_SHAPE)

        return _listed(rows, read_image)

    return Form("zips with CSV lists", root, (*zips, *lists.values()), SPLITS, read)


def _is_mini_name(name: str) -> bool:
    lower = name.lower()
    return "mini" in lower and "imagenet" in lower


def _read_text(path: Path) -> str:
    try:
        return read_text(path, "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise EngramError(f"the list {path} cannot be read ({error}): fetch it again") from error


def _list_in_zips(split: str, beside: dict[str, Path], members: ZipSet, root: Path) -> tuple[str, str]:
    if split in beside:
        return _read_text(beside[split]), str(beside[split])
    found = [name for name in members.names if PurePosixPath(name).name == f"{split}.csv"]
    if not found:
        raise EngramError(
            f"no {split}.csv in the miniImageNet zips of {root} or beside them: add the list of the {split} split"
        )
    try:
        return members.read(found[0]).decode("utf-8-sig"), members.label(found[0])
    except UnicodeDecodeError as error:
        raise EngramError(f"the list {members.label(found[0])} is not text ({error}): fetch it again") from error


def _parse_list(text: str, list_name: str) -> list[ListedImage]:
    try:
        return _rows(csv.DictReader(text.splitlines()), list_name)
    except csv.Error as error:
        raise EngramError(f"the list {list_name} is no CSV ({error}): fetch it again") from error


def _rows(reader: csv.DictReader[str], list_name: str) -> list[ListedImage]:
    columns = reader.fieldnames or []
    if "filename" not in columns or "label" not in columns:
        raise EngramError(
            f"{list_name} has the columns '{','.join(columns)}' where 'filename,label' are needed: add the header line"
        )
    rows: list[ListedImage] = []
    seen: dict[str, int] = {}
    for row in reader:
        filename, label = (row["filename"] or "").strip(), (row["label"] or "").strip()
        if not filename or not label:
            raise EngramError(
                f"{list_name} line {reader.line_num} lacks a filename or a label: complete or remove the line"
            )
        if filename in seen:
            raise EngramError(
                f"{list_name} names '{filename}' on line {seen[filename]} and on line {reader.line_num}: remove one"
            )
        seen[filename] = reader.line_num
        rows.append(ListedImage(reader.line_num, filename, label))
    if not rows:
        raise EngramError(f"{list_name} names no images: fetch the list again")
    return rows


def _check_all_there(rows: list[ListedImage], there: Container[str], list_name: str, where: str) -> None:
    missing = [row for row in rows if row.filename not in there]
    if missing:
        first = missing[0]
        raise EngramError(
            f"{list_name} line {first.line} names '{first.filename}', which is not in {where} "
            f"({len(missing)} of {len(rows)} listed images are missing): add the images, or shorten the list"
        )


def _listed(rows: list[ListedImage], read_image: Callable[[str], np.ndarray]) -> SplitSource:
    by_label: dict[str, list[str]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).append(row.filename)
    return _source(by_label, lambda name, _: read_image(name))


def _source(members: Mapping[str, Any], read_image: Callable[[Any, str], np.ndarray]) -> SplitSource:
    """Each class with what stands for its images; ``read_image`` is given one of these and what an error calls it."""
    names = sorted(members)

    def read_class(index: int) -> Iterator[np.ndarray]:
        for number, member in enumerate(members[names[index]]):
            yield read_image(member, f"image {number} of class '{names[index]}'")

    return SplitSource(tuple(names), tuple(len(members[name]) for name in names), read_class, IMAGE_SHAPE)


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
    return Form(name, root, tuple(files.values()), tuple(files), lambda split: read(files[split]))


def _read_cache(path: Path) -> SplitSource:
    content = load_dict(path)
    if "image_data" not in content or "class_dict" not in content:
        raise EngramError(
            f"{path} has the keys {sorted(map(str, content))} where 'image_data' and 'class_dict' are needed"
        )
    images = (
        content["image_data"] if isinstance(content["image_data"], LazyArray) else np.asarray(content["image_data"])
    )
    try:
        classes = content["class_dict"].items()
        rows = {_class_name(key): np.asarray(value, dtype=np.int64).ravel().tolist() for key, value in classes}
    except (AttributeError, TypeError, ValueError) as error:
        raise EngramError(
            f"'class_dict' of {path} does not give the image numbers of each class: fetch it again"
        ) from error
    wrong = next((row for own in rows.values() for row in own if not 0 <= row < len(images)), None)
    if wrong is not None:
        raise EngramError(f"{path} names image {wrong} but holds {len(images)} images: fetch it again")
    return _source(rows, lambda row, called: fit_array(images[row], f"{called} in {path}", IMAGE_SHAPE))


def _read_class_dict(path: Path) -> SplitSource:
    content = {_class_name(key): value for key, value in load_dict(path).items()}
    for name, images in content.items():
        if not isinstance(images, list | tuple | np.ndarray | LazyArray):
            raise EngramError(
                f"class '{name}' of {path} is a {type(images).__name__} where images are needed: fetch it again"
            )
    return _source(content, lambda image, called: fit_array(image, f"{called} in {path}", IMAGE_SHAPE))


def _class_name(key: Any) -> str:
    """Sortable text: class 9 comes before class 10."""
    if isinstance(key, bytes):
        return key.decode("latin1")
    return f"{int(key):04d}" if isinstance(key, int | np.integer) else str(key)


FINDERS = (find_tree, find_zips, find_cache, find_class_dict)
"""in the order they are tried"""
