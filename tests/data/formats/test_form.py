"""A dataset as a reader hands it back: found without torch, its splits by the names of their files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from engram.data.formats.form import SPLITS, SplitSource, split_files
from engram.data.store import Store
from engram.data.writing import build

SOURCE = SplitSource(("a", "b"), (2, 4), lambda c: iter(np.full((2 + 2 * c, 1, 3, 3), c, np.uint8)), (1, 3, 3))


def test_a_store_keeps_names_counts_and_groups(tmp_path: Path) -> None:
    build(tmp_path / "plain", "toy", "val", SOURCE, "made here", quiet=True)
    build(tmp_path / "pairs", "toy", "val", replace(SOURCE, group_size=2), "made here", quiet=True)
    plain, pairs = Store.open(tmp_path / "plain"), Store.open(tmp_path / "pairs")
    assert plain.info.class_names == SOURCE.class_names and tuple(plain.class_sizes) == SOURCE.counts
    assert plain.image_shape == SOURCE.image_shape and plain.images.flatten(1).unique(dim=1).tolist() == [
        [0], [0], [1], [1], [1], [1],
    ]  # fmt: skip
    assert (plain.info.group_size, pairs.info.group_size) == (1, 2)


def test_looking_for_data_needs_no_torch() -> None:
    code = "import sys, engram.data.formats.form, engram.data.catalogue; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_files_are_found_for_the_splits_that_are_there_in_order(tmp_path: Path) -> None:
    for name in ("test_images.npz", "train_images.npz", "validation_images.npz", "train_labels.pkl"):
        (tmp_path / name).touch()
    (tmp_path / "val_images.npz").mkdir()  # a folder is no file of a split
    found = split_files(tmp_path, "{split}_images.npz")
    assert list(found.items()) == [(s, tmp_path / f"{s}_images.npz") for s in SPLITS if s != "val"]
    assert split_files(tmp_path, "{split}.pickle") == {}
