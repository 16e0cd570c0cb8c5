"""Omniglot in its forms, and its two splits."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engram.data.formats.form import Form
from engram.data.formats.omniglot import find_alphabets, find_rotated
from engram.errors import EngramError

ALPHABETS = {"images_background": ("Greek", "Latin", "Runes"), "images_evaluation": ("Lao", "Thai")}
CHARACTERS, DRAWINGS = 2, 3


def drawing(seed: int) -> Image.Image:
    """Dark ink on light paper, one bit: a bar on the left, its width by the seed."""
    pixels = np.full((105, 105), True)
    pixels[:, : 15 + 15 * (seed % 3)] = False
    return Image.fromarray(pixels)


def write_tree(root: Path) -> Path:
    for part, alphabets in ALPHABETS.items():
        for alphabet in alphabets:
            for character in range(1, CHARACTERS + 1):
                folder = root / part / alphabet / f"character{character:02d}"
                folder.mkdir(parents=True)
                for number in range(DRAWINGS):
                    drawing(number).save(folder / f"0001_{number + 1:02d}.png")
    return root


def write_tar(tree: Path, root: Path) -> Path:
    root.mkdir()
    with tarfile.open(root / "omniglot.tar.xz", "w:xz") as archive:
        for part in ALPHABETS:
            archive.add(tree / part, f"./{part}")
    return root


def write_zips(tree: Path, root: Path) -> Path:
    root.mkdir()
    for part in ALPHABETS:
        with zipfile.ZipFile(root / f"{part}.zip", "w") as archive:
            for path in sorted((tree / part).rglob("*.png")):
                archive.write(path, path.relative_to(tree))
            archive.writestr(f"__MACOSX/{part}/Greek/character01/._0001_01.png", b"rubbish")
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "tree")


def found(form: Form | None) -> Form:
    assert form is not None
    return form


@pytest.mark.parametrize("write", [write_tar, write_zips])
def test_all_forms_give_the_same(tree: Path, tmp_path: Path, write: Callable[[Path, Path], Path]) -> None:
    one, other = found(find_alphabets(tree, 1)), found(find_alphabets(write(tree, tmp_path / "other"), 1))
    for split in one.splits:
        a, b = one.read(split), other.read(split)
        assert (a.class_names, a.counts) == (b.class_names, b.counts)
        assert np.array_equal(list(a.read_class(1)), list(b.read_class(1)))


def test_ink_is_high_and_small(tree: Path) -> None:
    source = found(find_alphabets(tree, 1)).read("train")
    images = list(source.read_class(0))
    assert images[0].shape == (1, 28, 28)
    assert images[0].dtype == np.uint8
    assert images[0][0, 14, 0] == 255
    assert images[0][0, 14, 27] == 0
    assert images[0].mean() < images[1].mean() < images[2].mean()  # in order of name


def test_the_split_by_alphabets(tree: Path) -> None:
    form = found(find_alphabets(tree, 1))
    names = {split: form.read(split).class_names for split in form.splits}
    assert names["train"] == ("Greek/character01", "Greek/character02", "Latin/character01", "Latin/character02")
    assert names["val"] == ("Runes/character01", "Runes/character02")
    assert {name.split("/")[0] for name in names["test"]} == {"Lao", "Thai"}


def test_the_split_by_characters_with_rotations(tree: Path) -> None:
    form = found(find_rotated(tree, 5, 2))
    names = {split: form.read(split).class_names for split in form.splits}
    assert {split: len(value) for split, value in names.items()} == {"train": 20, "val": 8, "test": 12}
    characters = {split: {name.rsplit("/", 1)[0] for name in value} for split, value in names.items()}
    assert sum(len(value) for value in characters.values()) == 10
    assert len(set.union(*characters.values())) == 10  # a character and its rotations stay in one split
    source = form.read("val")
    upright, quarter, half, three = (np.stack(list(source.read_class(index))) for index in range(4))
    assert np.array_equal(np.rot90(upright, 1, (2, 3)), quarter)
    assert np.array_equal(np.rot90(upright, 2, (2, 3)), half)
    assert np.array_equal(np.rot90(upright, 3, (2, 3)), three)
    assert source.class_names[1].endswith("/rotated090")


def test_other_folders_are_not_this_form(tmp_path: Path) -> None:
    (tmp_path / "images_background").mkdir()
    assert find_rotated(tmp_path) is None
    assert find_alphabets(tmp_path) is None


def test_damaged_archives_and_drawings_are_named(tree: Path, tmp_path: Path) -> None:
    root = write_tar(tree, tmp_path / "tar")
    archive = root / "omniglot.tar.xz"
    archive.write_bytes(archive.read_bytes()[:-400])
    with pytest.raises(EngramError, match=r"omniglot\.tar\.xz cannot be read as a tar archive \(.+\): fetch it again"):
        found(find_rotated(root)).read("train")
    with tarfile.open(archive, "w:xz") as empty:
        empty.addfile(tarfile.TarInfo("readme.txt"), io.BytesIO())
    with pytest.raises(EngramError, match=r"omniglot\.tar\.xz: hold no drawings below images_background/"):
        found(find_rotated(root)).read("train")
    bad = tree / "images_evaluation" / "Lao" / "character01" / "0001_01.png"
    bad.write_bytes(b"")
    with pytest.raises(EngramError, match=r"the image .*Lao/character01/0001_01\.png is empty"):
        list(found(find_alphabets(tree, 1)).read("test").read_class(0))


@pytest.mark.data
def test_the_real_set() -> None:
    folder = os.environ.get("ENGRAM_DATA")
    form = find_rotated(Path(folder), 0, 0) if folder else None
    if folder is None or form is None:
        pytest.skip("ENGRAM_DATA names no folder with Omniglot")
    source = form.read("test")  # with 0 characters for training and validation, all are in test
    assert len(source.class_names) == 4 * 1623
    assert set(source.counts) == {20}
    images = np.stack(list(source.read_class(0)))
    assert images.shape == (20, 1, 28, 28)
    assert 5 < images.mean() < 60  # mostly paper
    evaluation = found(find_alphabets(Path(folder))).read("test")
    assert len(evaluation.class_names) == 659
    assert len({name.split("/")[0] for name in evaluation.class_names}) == 20
