"""Folders of class folders: the three ways to divide them, and everything that people put into folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engram.data.formats.folder import FolderOptions, divide_classes, find_folder, read_split_file
from engram.errors import EngramError


def write_class(folder: Path, images: int = 2, mode: str = "RGB", size: tuple[int, int] = (20, 10)) -> Path:
    folder.mkdir(parents=True)
    for number in range(images):
        Image.new("L", size, 10 * number).convert(mode).save(folder / f"{number:03d}.png")
    return folder


def write_flat(root: Path, classes: int = 10) -> Path:
    for number in range(classes):
        write_class(root / f"class{number}")
    return root


def names(root: Path, split: str, options: FolderOptions = FolderOptions()) -> tuple[str, ...]:  # noqa: B008
    return find_folder(root, options).read(split).class_names


def test_split_folders(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        for name in ("b", "a"):
            write_class(tmp_path / split / f"{split}-{name}", images=3)
    form = find_folder(tmp_path)
    assert form.splits == ("train", "val", "test")
    source = form.read("val")
    assert (source.class_names, source.counts) == (("validation-a", "validation-b"), (3, 3))
    images = list(source.read_class(0))
    assert [image.shape for image in images] == [(3, 84, 84)] * 3
    assert [int(image[0, 0, 0]) for image in images] == [0, 10, 20]


def test_flat_folders_are_divided_by_seed(tmp_path: Path) -> None:
    root = write_flat(tmp_path / "set", 25)
    divided = [names(root, split) for split in ("train", "val", "test")]
    assert [len(part) for part in divided] == [16, 4, 5]
    assert len({name for part in divided for name in part}) == 25
    assert divided == [names(root, split) for split in ("train", "val", "test")]
    assert names(root, "test", FolderOptions(seed=1)) != divided[2]


@pytest.mark.parametrize("classes", range(6, 40))
def test_every_split_has_two_classes(classes: int) -> None:
    parts = divide_classes([str(number) for number in range(classes)], 0, (0.64, 0.16))
    assert all(len(part) >= 2 for part in parts.values())
    assert sum(len(part) for part in parts.values()) == classes


@pytest.mark.parametrize("kind", ["json", "csv", "elsewhere"])
def test_split_files(tmp_path: Path, kind: str) -> None:
    root = write_flat(tmp_path / "set", 7)
    splits = {"train": ["class3", "class0"], "val": ["class1", "class2"], "test": ["class6", "class5"]}
    if kind == "csv":
        rows = [f"{name},{split}" for split, classes in splits.items() for name in classes]
        (root / "splits.csv").write_text("\n".join(["class,split", *rows]))
    path = tmp_path / "my.json" if kind == "elsewhere" else root / "splits.json"
    if kind != "csv":
        path.write_text(json.dumps(splits))
    options = FolderOptions(split_file=path if kind == "elsewhere" else None)
    assert names(root, "train", options) == ("class0", "class3")
    assert names(root, "test", options) == ("class5", "class6")  # class4 is in none


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("splits.json", "{", r"the split file .*splits\.json cannot be read \(.+\): write JSON with the keys"),
        ("splits.json", "[1]", r"the split file .*splits\.json cannot be read"),
        ("splits.csv", "name\na\n", r"the split file .*splits\.csv cannot be read"),
        (
            "splits.json",
            '{"train": ["clas1"]}',
            r"names the class 'clas1', which .* does not have; did you mean 'class1'",
        ),
        ("splits.json", '{"trian": ["class1"]}', r"names the split 'trian' for 'class1'; did you mean 'train'"),
        ("splits.csv", "class,split\nclass1,train\nclass1,test\n", r"puts the class 'class1' into train and test"),
    ],
)
def test_bad_split_files(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    root = write_flat(tmp_path / "set", 6)
    (root / name).write_text(text)
    with pytest.raises(EngramError, match=sentence):
        find_folder(root)


def test_mixed_images_and_other_files(tmp_path: Path) -> None:
    root = write_flat(tmp_path / "set", 6)
    (root / "splits.json").write_text(json.dumps({"train": ["class0", "class1"]}))
    folder = root / "class0"
    Image.new("CMYK", (300, 200)).save(folder / "010.JPG", "JPEG")
    Image.new("RGBA", (5, 90)).save(folder / "011.png")
    (folder / "notes.txt").write_text("skipped")
    (folder / "deeper").mkdir()
    (folder / ".DS_Store").write_text("hidden")
    (folder / "._010.jpg").write_text("hidden")
    (root / "README.md").write_text("beside the classes")
    reading = find_folder(root, FolderOptions(image_size=16, channels=1)).read("train")
    assert reading.note == "2 entries without an image extension were skipped"
    assert reading.counts == (4, 2)
    assert np.stack(list(reading.read_class(0))).shape == (4, 1, 16, 16)


def test_a_bad_image_is_named(tmp_path: Path) -> None:
    root = write_flat(tmp_path / "set", 6)
    for number in range(6):
        (root / f"class{number}" / "zz.jpg").write_text("text")
    with pytest.raises(EngramError, match=r"class\d/zz\.jpg is not an image, whatever its name says"):
        list(find_folder(root).read("train").read_class(0))


def test_an_empty_class_is_named(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_class(tmp_path / split / "a")
        (tmp_path / split / "b").mkdir()
    with pytest.raises(
        EngramError, match=r"the class folder .*train/b holds no images: add some, or remove the folder"
    ):
        find_folder(tmp_path).read("train")
    (tmp_path / "test" / "b" / "x.txt").touch()
    with pytest.raises(EngramError, match=r"test/b holds no images \(its 1 entries have no image extension\)"):
        find_folder(tmp_path).read("test")


def test_too_few_classes(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match=r"set has 1 of the at least 6 class folders that a division"):
        find_folder(write_flat(tmp_path / "set", 1))
    write_class(tmp_path / "parts" / "train" / "only")
    with pytest.raises(
        EngramError, match=r"the train split of .*parts has 1 of the at least 2 classes that a task needs"
    ):
        find_folder(tmp_path / "parts").read("train")
    with pytest.raises(EngramError, match=r"class0 holds no class folders"):
        find_folder(tmp_path / "set" / "class0")


@pytest.mark.parametrize("target", ["..", "loop", "nowhere"])
def test_links_that_loop_are_named(tmp_path: Path, target: str) -> None:
    root = write_flat(tmp_path / "set", 6)
    (root / "loop").symlink_to(target)
    with pytest.raises(EngramError, match=r"the symbolic link .*loop leads (back to|nowhere)"):
        find_folder(root)


def test_links_to_other_folders_and_loops_inside_a_class_are_fine(tmp_path: Path) -> None:
    root = write_flat(tmp_path / "set", 6)
    (root / "linked").symlink_to(write_class(tmp_path / "elsewhere"))
    (root / "class0" / "up").symlink_to("..")
    assert sum(len(names(root, split)) for split in ("train", "val", "test")) == 7


def test_impossible_sizes(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="an image size of 0 with 3 channels cannot be"):
        find_folder(write_flat(tmp_path / "set", 6), FolderOptions(image_size=0))


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [("splits.json", "[" * 100_000, "recursion"), ("splits.csv", "class,split\n" + "x" * 200_000, "field larger")],
)
def test_a_split_file_nested_or_long_without_end(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(EngramError, match=f"{name} cannot be read .*{why}"):
        read_split_file(tmp_path / name)
