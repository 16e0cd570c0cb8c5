"""Commands that train: from a trained encoder and a head on frozen features to one model that sees images."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from toy_project import Project

from engram.data.store import Store
from engram.evaluation import picture
from engram.ledger import read_record
from engram.machine.interruptions import StopRequest
from engram.models.checkpoint import load

CPU = ("--device", "cpu")
HEAD = (
    ('name = "proto_net"', 'name = "content_memory"\nwidth = 4\nn_layers = 1\ncapacity = 40'),
    ("[data]", '[data]\nnames = "named"\nstream_length = 3\nn_query = 1'),
    ("[test]", '[test]\nnames = "named"\nstream_length = 3'),
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    made = Project(tmp_path, monkeypatch, capfd).with_images()
    made.write_recipe(*HEAD, name="head")
    return made


def test_help_explains_both_commands(project: Project) -> None:
    assert all(command in project.succeeds("--help") for command in ("features", "attach"))
    assert "one store per split" in project.succeeds("features", "--help")
    shown = project.succeeds("attach", "--help")
    assert "run folder of the head" in shown and "run folder the features came from" in shown


def test_from_an_encoder_to_a_model_that_sees_images(project: Project) -> None:
    assert project.train("--no-test").status == 0
    told = project.succeeds("features", "run", "features", *CPU)
    stores = {split: Store.open(project.root / "features" / split) for split in ("train", "val", "test")}
    for split, store in stores.items():
        assert f"features/{split}: 12 features of 3 classes\n" in told
        assert len(store.image_shape) == 1 and store.images.dtype == torch.float16
    both = project.succeeds("features", "run", "both", "--views", "2", *CPU)
    assert "both/train: 12 features" in both and Store.open(project.root / "both" / "train").views == 2
    assert "at least 1" in project.run("features", "run", "none", "--augmented", "0", *CPU).sentence
    project.succeeds("train", "head.toml", "--features", "features", "--out", "head", *CPU)
    before = project.files()
    assert "wrote whole/" in project.succeeds("attach", "head", "run", "whole")
    after = project.files()
    assert {k: v for k, v in after.items() if not k.startswith("whole/")} == before  # what it was given is left alone
    assert load(project.root / "whole").recipe.backbone == "conv32"
    project.succeeds("bench", "whole", *CPU)
    [benched] = [r for r in map(read_record, project.records()) if r.kind == "bench"]
    trained = next(r for r in map(read_record, project.records()) if r.kind == "train" and r.method == "content_memory")
    assert benched.method == "content_memory" and len(benched.evaluations) == len(trained.evaluations) == 2
    for one, other in zip(benched.evaluations, trained.evaluations, strict=True):
        assert one.tasks_digest == other.tasks_digest
        assert one.metrics["accuracy"] == pytest.approx(other.metrics["accuracy"], abs=0.05)
        assert one.metrics["nll"] == pytest.approx(other.metrics["nll"], abs=0.05)


def test_what_cannot_be_done_is_told_in_one_sentence(project: Project) -> None:
    assert "nothing" in project.run("features", "nothing", "features", *CPU).sentence
    assert project.train("--no-test").status == 0
    sentence = project.run("attach", "run", "run", "whole").sentence
    assert sentence.startswith("run was trained on images of (3, ") and "not on features" in sentence
    sentence = project.run("train", "head.toml", "--features", "features", *CPU).sentence
    assert "there are no features of train in features" in sentence
    assert "nothing" in project.run("attach", "nothing", "run", "whole").sentence
    assert not (project.root / "whole").exists() and not (project.root / "features").exists()


def test_a_packed_run_is_smaller_and_answers(project: Project) -> None:
    assert project.train("--no-test").status == 0
    assert project.succeeds("pack", "run", "small").startswith("wrote small/")
    before, after = (
        sum(p.stat().st_size for p in load(project.root / name).folder.iterdir()) for name in ("run", "small")
    )
    assert after < 0.7 * before
    project.succeeds("bench", "small", *CPU)


def test_an_interrupted_training_says_how_to_go_on_and_is_no_success(project: Project) -> None:
    project.monkeypatch.setattr(StopRequest, "__enter__", lambda self: setattr(self, "requested", True) or self)
    outcome = project.train("--no-test")
    assert outcome.status == 130
    assert "engram: stopped and saved at step 0: go on with the same command and --resume" in outcome.err


def test_a_finished_run_that_is_resumed_leaves_no_second_record(project: Project) -> None:
    assert project.train("--no-test").status == 0
    assert project.train("--no-test", "--resume").status == 0 and len(project.records()) == 1
    assert project.train("--resume").status == 0 and len(project.records()) == 2  # tested now, and so another record
    assert project.train("--resume").status == 0 and len(project.records()) == 2


def test_an_empty_model_is_not_the_current_folder(project: Project) -> None:
    for arguments in (("features", "", "out"), ("pack", "", "out"), ("picture", "", "out.npz")):
        assert project.run(*arguments).sentence.startswith("the name of the MODEL is empty: give a run")


def test_a_picture_replaces_pictures_alone(project: Project) -> None:
    project.monkeypatch.setattr(picture, "episode_arrays", partial(picture.episode_arrays, n_way=3))
    assert project.train("--no-test").status == 0
    (project.root / "mine.npz").write_bytes(b"mine")
    for out, says in (("/", "is no name of a picture"), ("a.txt", "is no name"), ("mine.npz", "so it is kept")):
        assert says in project.run("picture", "run", out, *CPU).sentence
    for _ in range(2):
        project.succeeds("picture", "run", "task.npz", *CPU)
    assert (project.root / "mine.npz").read_bytes() == b"mine" and not (project.root / "a.txt.npz").exists()
