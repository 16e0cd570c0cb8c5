"""The table of datasets: rows by name, and the files of a set by what lies in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from engram.data import catalogue
from engram.data.catalogue import DATASETS, FOLDER_SPEC, find_form, search, spec_of
from engram.data.formats.folder import FolderOptions
from engram.errors import EngramError


def test_the_glyphs_need_no_files() -> None:
    form = catalogue.find_form("glyphs", None, FolderOptions())
    assert form.splits == ("train", "val", "test")
    assert form.name == "drawn from fonts"


def test_rows_are_found_by_name() -> None:
    assert all(spec_of(name) is spec and spec.name == name for name, spec in DATASETS.items())
    assert spec_of("folder:somewhere/else") is FOLDER_SPEC
    with pytest.raises(EngramError, match="unknown dataset 'omniglott'; did you mean 'omniglot'"):
        spec_of("omniglott")


@pytest.mark.parametrize("name", [name for name, spec in DATASETS.items() if spec.classes])
def test_rows_give_classes_and_images_of_the_same_splits(name: str) -> None:
    spec = spec_of(name)
    assert set(spec.classes) == set(spec.images) == {"train", "val", "test"}
    assert all(spec.images[split] > spec.classes[split] for split in spec.classes)


@pytest.mark.parametrize("below", ["", "tiered_imagenet"])
def test_the_first_form_that_lies_there_is_taken(tmp_path: Path, below: str) -> None:
    folder = tmp_path / below
    folder.mkdir(exist_ok=True)
    assert search(DATASETS["tieredimagenet"], tmp_path) is None
    (folder / "val_images_png.pkl").touch()
    png = find_form("tieredimagenet", tmp_path, FolderOptions())
    (folder / "val_images.npz").touch()
    npz = find_form("tieredimagenet", tmp_path, FolderOptions())
    assert png.root == npz.root == folder and png.splits == npz.splits == ("val",)
    assert png.name != npz.name and folder / "val_images.npz" in npz.files
