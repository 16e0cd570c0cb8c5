"""What every reader hands back: a dataset as it lies on disk, found by names alone and read split by split."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engram.errors import EngramError


@dataclass(frozen=True)
class SplitSource:
    """A split ready to be built: its classes, how many images each has, and a way to read those of one class."""

    class_names: tuple[str, ...]
    counts: tuple[int, ...]
    read_class: Callable[[int], Iterator[np.ndarray]]
    """Class index -> its images in order, each uint8 (channels, height, width) of the store's shape."""
    image_shape: tuple[int, ...]
    group_size: int = 1
    """Consecutive images that are variants of one original (a font, transformed); a task meets one of them at most."""
    dtype: str = "uint8"
    note: str = ""
    """what a person should know about it"""


SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Form:
    """A dataset in one of its forms. Finding one looks at names only; `read` opens the files of one split."""

    name: str
    """The form in plain words, such as "zips with CSV lists"."""
    root: Path | str
    """its folder, or the URL of shards"""
    files: tuple[Path, ...]
    """What the fingerprint covers by name, size and time: archives, lists, and the folders that hold the images."""
    splits: tuple[str, ...]
    read: Callable[[str], SplitSource]
    every_file: bool = False
    """Whether the fingerprint asks every file of the folders among `files`, not only the folders themselves."""
    options: str = ""
    """Settings that change the images or the split (image size, seed): part of the fingerprint."""


def names_in(folder: Path) -> list[str]:
    """What a folder holds, sorted."""
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise EngramError(
            f"the folder {folder} cannot be read ({error.strerror}): check the path and permissions"
        ) from error


def split_files(root: Path, pattern: str) -> dict[str, Path]:
    """The files ``pattern`` names with a split for ``{split}``, of those splits that are there."""
    candidates = {split: root / pattern.format(split=split) for split in SPLITS}
    return {split: path for split, path in candidates.items() if path.is_file()}
