"""Splits by the names of their files."""

from __future__ import annotations

from pathlib import Path

from engram.data.formats.form import SPLITS, split_files


def test_files_are_found_for_the_splits_that_are_there_in_order(tmp_path: Path) -> None:
    for name in ("test_images.npz", "train_images.npz", "validation_images.npz", "train_labels.pkl"):
        (tmp_path / name).touch()
    (tmp_path / "val_images.npz").mkdir()  # a folder is no file of a split
    found = split_files(tmp_path, "{split}_images.npz")
    assert list(found.items()) == [(s, tmp_path / f"{s}_images.npz") for s in SPLITS if s != "val"]
    assert split_files(tmp_path, "{split}.pickle") == {}
