"""miniImageNet as images and CSV lists, in the split of Ravi & Larochelle (2017).

Two forms: a tree ``images/<name>.jpg`` with ``train.csv``, ``val.csv``, ``test.csv`` (columns filename,label), or zips
whose names hold "mini" and "imagenet", with the same files inside; the lists may lie in any of the zips or beside them.

The lists decide. A class has the images its list names, in the list's order, and classes are sorted by name; images no
list names are left out. An image that is listed but missing is an error in both forms, so a store never holds fewer
images than its list says. A partial set is read by giving it shorter lists.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from engram.data.formats.archives import ZipSet
from engram.data.formats.form import SPLITS, Form, SplitReading, SplitSource, names_in, split_files
from engram.data.formats.images import decode_image
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

    def read(split: str) -> SplitReading:
        rows = _parse_list(_read_text(lists[split]), str(lists[split]))
        _check_all_there(rows, set(names_in(images)), str(lists[split]), str(images))
        return SplitReading(_source(rows, lambda name: decode_image(images / name, str(images / name), IMAGE_SHAPE)))

    return Form("images/ with CSV lists", root, (*lists.values(), images), tuple(lists), read)


def find_zips(root: Path) -> Form | None:
    """Zips of miniImageNet, or None. Which lists they hold shows when a split is read."""
    zips = tuple(sorted(path for path in root.glob("*.zip") if _is_mini_name(path.name)))
    if not zips:
        return None
    lists = split_files(root, "{split}.csv")

    def read(split: str) -> SplitReading:
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

        return SplitReading(_source(rows, read_image))

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


def _source(rows: list[ListedImage], read_image: Callable[[str], np.ndarray]) -> SplitSource:
    by_label: dict[str, list[str]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).append(row.filename)
    labels = sorted(by_label)

    def read_class(index: int) -> Iterator[np.ndarray]:
        return map(read_image, by_label[labels[index]])

    return SplitSource(tuple(labels), tuple(len(by_label[label]) for label in labels), read_class, IMAGE_SHAPE)
