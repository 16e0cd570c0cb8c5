"""Any folder of class folders.

Either ``train/``, ``val/`` and ``test/`` hold the class folders, or they lie flat and the classes are divided by a
split file or by a seed. A split file is ``splits.json`` ({"train": [...], "val": [...], "test": [...]}) or
``splits.csv`` (columns class,split) in the folder, or any file given; classes it does not name are left out. Without
one, the classes are ordered by a hash of seed and name and divided 64 : 16 : 20, at least two in each split.

Images lie directly in their class folder and are read in order of name. Hidden files are passed over, files without an
image's extension are skipped and counted, but a file with such an extension that is no image is an error.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engram.data.formats.form import SPLITS, Form, SplitSource, names_in
from engram.data.formats.images import decode_image
from engram.errors import EngramError, nearest
from engram.files import read_text

EXTENSIONS = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"))
SPLIT_FILES = ("splits.json", "splits.csv")
SPLIT_FOLDERS = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}
CLASSES_PER_SPLIT = 2
"""A task needs two classes to tell apart."""


@dataclass(frozen=True)
class FolderOptions:
    """How a folder of class folders is read."""

    image_size: int = 84
    channels: int = 3
    seed: int = 0
    fractions: tuple[float, float] = (0.64, 0.16)
    """Of train and val; test has the rest."""
    split_file: Path | None = None
    crop: float | None = None
    """share of the short side that is cut out of the middle; None: the whole, squeezed"""


def find_folder(root: Path, options: FolderOptions = FolderOptions()) -> Form:
    """The folder ``root`` as a dataset; never None, because any folder is this form or an error."""
    shape = (options.channels, options.image_size, options.image_size)
    if options.image_size < 1 or options.channels not in (1, 3):
        raise EngramError(
            f"an image size of {options.image_size} with {options.channels} channels cannot be: use 84 with 3"
        )
    folders = _split_folders(root)
    lists: tuple[Path, ...] = ()
    if folders and options.split_file is None:
        splits = {split: _class_folders(path) for split, path in folders.items()}
        name = "class folders in train/ val/ test/"
    else:
        splits, lists = _divide(root, options)
        name = f"class folders with {lists[0].name}" if lists else f"class folders divided by seed {options.seed}"
    files = (*lists, *(folder for classes in splits.values() for folder in classes))

    def read(split: str) -> SplitSource:
        return _read_split(root, split, splits[split], shape, options.crop)

    told = f"{shape} {options.seed} {options.fractions}" + (f" {options.crop}" if options.crop else "")
    return Form(name, root, files, tuple(splits), read, True, told)


def _entries(folder: Path) -> list[Path]:
    """What a folder holds, sorted, without hidden names."""
    return [folder / name for name in names_in(folder) if not name.startswith(".")]


def _split_folders(root: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for split, names in SPLIT_FOLDERS.items():
        there = [root / name for name in names if (root / name).is_dir()]
        if there and any(path.is_dir() for path in _entries(there[0])):  # a class may be called "test": it has images
            found[split] = there[0]
    return found if "train" in found or "test" in found else {}


def _class_folders(parent: Path) -> list[Path]:
    classes = []
    for path in _entries(parent):
        if path.is_symlink():
            _check_link(path)
        if path.is_dir():
            classes.append(path)
    return classes


def _check_link(path: Path) -> None:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise EngramError(f"the symbolic link {path} leads nowhere or to itself: remove it") from error
    if path.parent.resolve().is_relative_to(target):
        raise EngramError(f"the symbolic link {path} leads back to {target}, a folder it lies in: remove it")


def _divide(root: Path, options: FolderOptions) -> tuple[dict[str, list[Path]], tuple[Path, ...]]:
    classes = {path.name: path for path in _class_folders(root)}
    if not classes:
        raise EngramError(f"{root} holds no class folders: put the images of each class into a folder of its own")
    given = options.split_file or next((root / name for name in SPLIT_FILES if (root / name).is_file()), None)
    if given is not None:
        listed = read_split_file(given)
        for name in (name for names in listed.values() for name in names):
            if name not in classes:
                raise EngramError(
                    f"{given} names the class '{name}', which {root} does not have{nearest(name, classes)}"
                )
        return {split: [classes[name] for name in sorted(names)] for split, names in listed.items()}, (given,)
    if len(classes) < CLASSES_PER_SPLIT * len(SPLITS):
        raise EngramError(
            f"{root} has {len(classes)} of the at least {CLASSES_PER_SPLIT * len(SPLITS)} class folders that a "
            f"division into train, val and test needs: add classes, or make train/ val/ test/ folders or a splits.json"
        )
    names = divide_classes(sorted(classes), options.seed, options.fractions)
    return {split: [classes[name] for name in chosen] for split, chosen in names.items()}, ()


def divide_classes(names: list[str], seed: int, fractions: tuple[float, float]) -> dict[str, list[str]]:
    """Train, val and test classes by seed; the order is that of a hash, so no random generator can change it."""
    order = sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).hexdigest())
    least, total = CLASSES_PER_SPLIT, len(names)
    val = max(least, round(total * fractions[1]))
    train = min(max(least, round(total * fractions[0])), total - val - least)
    parts = (order[:train], order[train : train + val], order[train + val :])
    return {split: sorted(part) for split, part in zip(SPLITS, parts, strict=True)}


def read_split_file(path: Path) -> dict[str, list[str]]:
    """Split -> class names from JSON or CSV; a class in two splits or an unknown split is an error."""
    try:
        text = read_text(path, "utf-8-sig")
        if path.suffix == ".json":
            pairs = [(str(name), split) for split, names in json.loads(text).items() for name in names]
        else:
            pairs = [(row["class"].strip(), row["split"].strip()) for row in csv.DictReader(text.splitlines())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error, RecursionError) as error:
        raise EngramError(
            f"the split file {path} cannot be read ({error}): write JSON with the keys train, val and test, "
            f"or CSV with the columns class,split"
        ) from error
    splits: dict[str, list[str]] = {}
    seen: dict[str, str] = {}
    for name, split in pairs:
        if split not in SPLITS:
            raise EngramError(f"the split file {path} names the split '{split}' for '{name}'{nearest(split, SPLITS)}")
        if name in seen:
            raise EngramError(f"the split file {path} puts the class '{name}' into {seen[name]} and {split}: keep one")
        seen[name] = split
        splits.setdefault(split, []).append(name)
    return splits


def pictures_in(folder: Path) -> tuple[list[Path], int]:
    """The pictures of a class folder in order of name, at least one, and how many other entries it has."""
    entries = _entries(folder)
    chosen = [path for path in entries if path.suffix.lower() in EXTENSIONS and not path.is_dir()]
    if not chosen:
        others = f" (its {len(entries)} entries have no image extension)" if entries else ""
        raise EngramError(f"the class folder {folder} holds no images{others}: add some, or remove the folder")
    return chosen, len(entries) - len(chosen)


def class_pictures(root: Path) -> dict[str, list[Path]]:
    """Class name -> its pictures, for a folder of class folders that is one set and not a dataset with splits."""
    classes = _class_folders(root)
    if not classes:
        raise EngramError(f"{root} holds no class folders: put the images of each class into a folder of its own")
    return {folder.name: pictures_in(folder)[0] for folder in classes}


def _read_split(root: Path, split: str, classes: list[Path], shape: tuple[int, ...], crop: float | None) -> SplitSource:
    if len(classes) < CLASSES_PER_SPLIT:
        raise EngramError(
            f"the {split} split of {root} has {len(classes)} of the at least {CLASSES_PER_SPLIT} classes that a "
            f"task needs: add class folders"
        )
    images: list[list[Path]] = []
    skipped = 0
    for folder in classes:
        chosen, others = pictures_in(folder)
        skipped += others
        images.append(chosen)

    def read_class(index: int) -> Iterator[np.ndarray]:
        return (decode_image(path, str(path), shape, crop) for path in images[index])

    counts = tuple(len(paths) for paths in images)
    note = f"{skipped} entries without an image extension were skipped" if skipped else ""
    return SplitSource(tuple(folder.name for folder in classes), counts, read_class, shape, note=note)
