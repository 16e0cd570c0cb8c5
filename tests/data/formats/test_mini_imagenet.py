"""miniImageNet as images and lists, in a tree and in zips; and as pickles."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from pickled import CHANNELS_FIRST, IMAGES, dump, found
from PIL import Image

from engram.data.formats.mini_imagenet import find_cache, find_class_dict, find_tree, find_zips
from engram.errors import EngramError

LISTS = {"train": ("n01", "n02"), "val": ("n03",), "test": ("n04",)}


def write_tree(root: Path, per_class: int = 3) -> Path:
    (root / "images").mkdir(parents=True)
    for split, labels in LISTS.items():
        lines = ["filename,label"]
        for label in reversed(labels):
            for number in range(per_class):
                name = f"{label}{number:08d}.jpg"
                colour = (int(label[1:]) * 40, number * 40, 0)
                Image.new("RGB", (84, 84), colour).save(root / "images" / name, quality=95)
                lines.append(f"{name},{label}")
        (root / f"{split}.csv").write_text("\n".join(lines) + "\n")
    return root


def write_zips(tree: Path, root: Path) -> Path:
    root.mkdir()
    images = sorted((tree / "images").iterdir())
    for number, part in enumerate((images[:6], images[6:])):
        with zipfile.ZipFile(root / f"miniimagenet-{number}.zip", "w") as archive:
            for path in part:
                archive.write(path, f"images/{path.name}")
            for split in LISTS if number else ():
                archive.write(tree / f"{split}.csv", f"{split}.csv")
    return root


def test_tree_and_zips_give_the_same(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    one, other = found(find_tree(tree)), found(find_zips(write_zips(tree, tmp_path / "zips")))
    for split, labels in LISTS.items():
        a, b = one.read(split), other.read(split)
        assert a.class_names == b.class_names == labels
        assert a.counts == b.counts == (3,) * len(labels)
        for index in range(len(labels)):
            first, second = list(a.read_class(index)), list(b.read_class(index))
            assert np.array_equal(first, second)
            assert first[0].shape == (3, 84, 84)
            assert abs(int(first[2][1].mean()) - 80) < 5  # in the list's order


def test_other_folders_are_not_this_form(tmp_path: Path) -> None:
    assert find_tree(tmp_path) is None
    (tmp_path / "images").mkdir()
    (tmp_path / "holiday.zip").touch()
    assert find_tree(tmp_path) is None
    assert find_zips(tmp_path) is None


def test_lists_may_lie_beside_the_zips_and_folders_above_inside(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    root = tmp_path / "zips"
    root.mkdir()
    with zipfile.ZipFile(root / "mini-ImageNet.zip", "w") as archive:
        for path in (tree / "images").iterdir():
            archive.write(path, f"mini/images/{path.name}")
    (root / "val.csv").write_text((tree / "val.csv").read_text())
    form = found(find_zips(root))
    assert form.read("val").counts == (3,)
    with pytest.raises(EngramError, match=r"no train\.csv in the miniImageNet zips of .*zips or beside them"):
        form.read("train")


@pytest.mark.parametrize("kind", ["tree", "zips"])
def test_a_list_that_names_a_missing_file(tmp_path: Path, kind: str) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "images" / "n0300000001.jpg").unlink()
    form = found(find_tree(tree) if kind == "tree" else find_zips(write_zips(tree, tmp_path / "zips")))
    sentence = (
        r"val\.csv line 3 names 'n0300000001\.jpg', which is not in .*images.* \(1 of 3 listed images are missing\)"
    )
    with pytest.raises(EngramError, match=sentence):
        form.read("val")


def test_a_list_cannot_reach_outside_images(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "val.csv").write_text("filename,label\n../../secret.jpg,n03\n")
    with pytest.raises(EngramError, match=r"line 2 names '\.\./\.\./secret\.jpg', which is not in"):
        found(find_tree(tree)).read("val")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("file,class\na.jpg,n03\n", r"val\.csv has the columns 'file,class' where 'filename,label' are needed"),
        ("", r"val\.csv has the columns '' where"),
        ("filename,label\n", r"val\.csv names no images"),
        ("filename,label\na.jpg\n", r"val\.csv line 2 lacks a filename or a label"),
        ("filename,label\na.jpg,n1\na.jpg,n2\n", r"val\.csv names 'a\.jpg' on line 2 and on line 3"),
    ],
)
def test_bad_lists(tmp_path: Path, text: str, sentence: str) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "val.csv").write_text(text)
    with pytest.raises(EngramError, match=sentence):
        found(find_tree(tree)).read("val")


@pytest.mark.parametrize("member", ["../../evil.jpg", "/etc/evil.jpg", "images/../../evil.jpg", "C:\\evil.jpg"])
def test_members_that_point_outside_are_refused(tmp_path: Path, member: str) -> None:
    with zipfile.ZipFile(tmp_path / "miniimagenet.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo(member), b"x")
    with pytest.raises(EngramError, match=r"miniimagenet\.zip holds the member '.*', which points outside the archive"):
        found(find_zips(tmp_path)).read("train")


def test_damaged_zips_are_named(tmp_path: Path) -> None:
    root = write_zips(write_tree(tmp_path / "tree"), tmp_path / "zips")
    archive = root / "miniimagenet-1.zip"
    content = archive.read_bytes()
    archive.write_bytes(content[:-40])
    with pytest.raises(EngramError, match=r"miniimagenet-1\.zip cannot be opened as a zip"):
        found(find_zips(root)).read("val")
    archive.write_bytes(content[:200] + b"\0" * 50 + content[250:])
    with pytest.raises(EngramError, match=r"miniimagenet-1\.zip:images/n03\d+\.jpg cannot be read \(.*CRC.*\)"):
        list(found(find_zips(root)).read("val").read_class(0))


def test_a_damaged_image_in_a_zip_is_named(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "images" / "n0300000001.jpg").write_text("not an image")
    form = found(find_zips(write_zips(tree, tmp_path / "zips")))
    with pytest.raises(EngramError, match=r"miniimagenet-1\.zip:images/n0300000001\.jpg is not an image"):
        list(form.read("val").read_class(0))


@pytest.mark.data
@pytest.mark.parametrize(("split", "classes", "images"), [("train", 64, 600), ("val", 16, 300), ("test", 20, 600)])
def test_the_real_set(split: str, classes: int, images: int) -> None:
    folder = os.environ.get("ENGRAM_DATA")
    form = find_zips(Path(folder)) if folder else None
    if form is None:
        pytest.skip("ENGRAM_DATA names no folder with the miniImageNet zips")
    source = form.read(split)
    assert len(source.class_names) == classes
    assert set(source.counts) == {images}
    pixels = np.stack(list(source.read_class(classes - 1)))
    assert pixels.shape == (images, 3, 84, 84)
    assert 60 < pixels.mean() < 180
    assert len(np.unique(pixels.reshape(images, -1), axis=0)) > images * 0.99  # hardly any picture twice


@pytest.mark.parametrize("protocol", [2, 4])
def test_the_cache_form(tmp_path: Path, protocol: int) -> None:
    content = {"image_data": IMAGES, "class_dict": {"n02": [3, 4, 5], "n01": np.array([2, 0, 1])}}
    dump(tmp_path / "mini-imagenet-cache-val.pkl", content, protocol)
    form = found(find_cache(tmp_path))
    assert form.splits == ("val",)
    source = form.read("val")
    assert (source.class_names, source.counts) == (("n01", "n02"), (3, 3))
    assert np.array_equal(list(source.read_class(0)), CHANNELS_FIRST[[2, 0, 1]])
    assert find_class_dict(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([1], "holds a list where a dict is needed"),
        ({"data": 1}, r"has the keys \['data'\] where 'image_data' and 'class_dict' are needed"),
        ({"image_data": IMAGES, "class_dict": {"a": [0, 6]}}, "names image 6 but holds 6 images"),
        ({"image_data": IMAGES, "class_dict": {"a": [-1]}}, "names image -1 but holds 6 images"),
        ({"image_data": IMAGES, "class_dict": [1]}, "'class_dict' of .* does not give the image numbers of each class"),
    ],
)
def test_bad_caches(tmp_path: Path, content: object, sentence: str) -> None:
    dump(tmp_path / "mini-imagenet-cache-val.pkl", content)
    with pytest.raises(EngramError, match=sentence):
        found(find_cache(tmp_path)).read("val")


@pytest.mark.parametrize("below", ["", "compacted_datasets"])
def test_the_class_dictionary_form(tmp_path: Path, below: str) -> None:
    (tmp_path / below).mkdir(exist_ok=True)
    content = {10: list(IMAGES[:2].astype("float32")), 9: IMAGES[2:]}
    dump(tmp_path / below / "mini_imagenet_test.pickle", content, 2)
    source = found(find_class_dict(tmp_path)).read("test")
    assert (source.class_names, source.counts) == (("0009", "0010"), (4, 2))
    assert np.array_equal(list(source.read_class(1)), CHANNELS_FIRST[:2])


def test_a_class_dictionary_without_images(tmp_path: Path) -> None:
    dump(tmp_path / "mini_imagenet_test.pickle", {"n01": 5})
    with pytest.raises(
        EngramError, match=r"class 'n01' of .*mini_imagenet_test\.pickle is a int where images are needed"
    ):
        found(find_class_dict(tmp_path)).read("test")
