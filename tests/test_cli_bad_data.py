"""Datasets that cannot be used: one sentence, status 2, and nothing on disk is changed."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from pathlib import Path

import pytest
from PIL import Image
from toy_project import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    return Project(tmp_path, monkeypatch, capfd)


def refused(project: Project, *arguments: object) -> str:
    """The sentence for a command that must change no file and leave no store half built."""
    before = project.files()
    sentence = project.run(*arguments).sentence
    assert project.files() == before
    return sentence


def test_missing_empty_and_file_in_place_of_a_folder(project: Project) -> None:
    (project.root / "empty").mkdir()
    (project.root / "file").write_text("text")
    for command in (("data",), ("train", "proto_net/glyphs_5w1s", "--dataset")):
        for name, problem in (
            ("nowhere", "does not exist: check the path"),
            ("empty", "is empty: put the dataset there, or check the path"),
            ("file", "is a file: give the folder it lies in"),
        ):
            assert refused(project, *command, f"folder:{name}") == f"the image folder {name} {problem}"
    assert refused(project, "data", "miniimagenet", "--data", "nowhere") == (
        "the data folder nowhere does not exist: check the path"
    )
    assert refused(project, "train", "proto_net/mini_5w1s").startswith(
        "miniimagenet needs its files: set ENGRAM_DATA or give --data with the folder that holds them"
    )
    assert refused(project, "data", "glyps") == "unknown dataset 'glyps'; did you mean 'glyphs'?"


def test_a_folder_that_may_not_be_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.with_images()
    scan = os.scandir

    def guarded(path: str | Path) -> object:
        if Path(path).name == "images":  # permissions do not bind root, who may run the tests
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", guarded)
    assert refused(project, "train", "recipe.toml") == (
        f"the image folder {project.images} cannot be read (Permission denied): check its permissions"
    )


def test_a_class_with_too_few_images(project: Project) -> None:
    project.with_images(per_class=2)
    assert refused(project, "train", "recipe.toml") == (
        f"class 'test0' of folder:{project.images} test has 2 images but 1 shots + 2 queries need 3: "
        f"lower n_shot or n_query, or remove the class"
    )


def test_more_ways_than_classes(project: Project) -> None:
    project.with_images()
    sentence = f"7 ways were asked for but folder:{project.images} test offers 3 classes: lower n_way"
    assert refused(project, "bench", "chance", "--recipe", "recipe.toml", "--n-way", 7) == sentence
    project.write_recipe(("[test]\nn_way = 2", "[test]\nn_way = 7"))
    assert refused(project, "train", "recipe.toml") == sentence


def test_more_training_ways_than_classes_leaves_a_failed_record(project: Project) -> None:
    project.with_images().write_recipe((f'{project.images}"\nn_way = 2', f'{project.images}"\nn_way = 9'))
    assert project.train().sentence == (
        f"9 ways were asked for but folder:{project.images} train offers 3 classes: lower n_way"
    )
    assert '"status": "failed"' in project.records()[0].read_text()


def test_a_truncated_image_and_a_text_named_jpg(project: Project) -> None:
    project.with_images()
    bad = project.images / "train/train1/0.jpg"
    Image.new("RGB", (40, 40), "red").save(bad)
    bad.write_bytes(bad.read_bytes()[:300])
    for command in (("train", "recipe.toml"), ("data", f"folder:{project.images}", "--build")):
        assert re.fullmatch(
            f"the image {bad} is damaged \\(.+\\): fetch it again, or remove it", refused(project, *command)
        )
    bad.write_text("this is no picture")
    assert refused(project, "train", "recipe.toml") == (
        f"{bad} is not an image, whatever its name says: replace it, or remove it"
    )
    bad.unlink()
    project.succeeds("train", "recipe.toml")  # what was built before is used, what was refused left nothing behind


def write_lists(root: Path) -> Path:
    """miniImageNet as images/ and lists, with one image each."""
    (root / "images").mkdir(parents=True)
    Image.new("RGB", (84, 84)).save(root / "images" / "n01.jpg")
    for split in ("train", "val", "test"):
        (root / f"{split}.csv").write_text("filename,label\nn01.jpg,n01\n")
    return root


def test_a_list_that_names_a_missing_file(project: Project) -> None:
    write_lists(project.root / "mini")
    (project.root / "mini/train.csv").write_text("filename,label\nn01.jpg,n01\nn02.jpg,n01\n")
    sentence = refused(project, "train", "proto_net/mini_5w1s", "--data", "mini")
    assert "n02.jpg" in sentence and "train.csv" in sentence


class Intruder:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.target),)


def test_a_pickle_that_calls_code(project: Project) -> None:
    target = project.root / "made_by_the_file"
    (project.root / "mini").mkdir()
    for split in ("train", "val", "test"):
        (project.root / f"mini/mini-imagenet-cache-{split}.pkl").write_bytes(pickle.dumps(Intruder(target)))
    sentence = refused(project, "train", "proto_net/mini_5w1s", "--data", "mini")
    assert "mini-imagenet-cache-train.pkl names 'posix.mkdir', which is neither an array" in sentence
    assert not target.exists()


def test_an_archive_that_reaches_outside(project: Project) -> None:
    lists = write_lists(project.root / "lists")
    (project.root / "mini").mkdir()
    with zipfile.ZipFile(project.root / "mini/miniimagenet.zip", "w") as archive:
        archive.writestr("images/../../n01.jpg", (lists / "images/n01.jpg").read_bytes())
        for split in ("train", "val", "test"):
            archive.write(lists / f"{split}.csv", f"{split}.csv")
    sentence = refused(project, "train", "proto_net/mini_5w1s", "--data", "mini")
    assert "images/../../n01.jpg" in sentence
    assert not (project.root / "n01.jpg").exists()
