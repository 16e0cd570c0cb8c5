"""Commands that train, from an encoder and a head on frozen features to one model that sees images, and that ask it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from xml.etree import ElementTree

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
    (made.root / "slots.py").write_text(OWN_CODE)
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


OWN_CODE = """
from dataclasses import dataclass
import torch
from engram.types import Method, MethodCard, Prediction

@dataclass(frozen=True)
class Config:
    pass

class BySlot(Method):
    card = MethodCard(title="by slot", paper="none", batch_norm="none", trainable=False)
    Config = Config
    def predict(self, episode, history=()):
        slots = torch.arange(episode.query.shape[1], device=episode.query.device) % episode.n_way
        logits = 3.0 * torch.nn.functional.one_hot(slots, episode.n_way).expand(len(episode.query), -1, -1)
        return Prediction(logits.log_softmax(-1))
"""
FEW = ("--recipe", "recipe.toml", "--stream-length", 2)


def test_a_whole_audit_prints_its_findings_and_draws_them(project: Project) -> None:
    out = project.succeeds("audit", "pixel_centroid", *FEW, "--n-sequences", 20, "--figure", "a.svg", "--note", "x")
    assert "audit of pixel_centroid/recipe" in out and "clean" in out and "record: results/runs/" in out
    ElementTree.parse(project.root / "a.svg")
    (path,) = project.records()
    record = read_record(path)
    assert (record.kind, record.note) == ("audit", "x") and len(record.audit) == 21


def test_a_trained_run_is_audited(project: Project) -> None:
    assert project.train().status == 0
    assert "not applicable" in project.succeeds("audit", "run", "--quick", "--n-way", 3, "--results", "other")
    record = read_record(next((project.root / "other").glob("proto_net.recipe.*.json")))
    assert record.audit_protocol["n_way"] == 3 and record.trained_by


def test_a_leak_is_a_result_and_a_failure_only_on_request(project: Project) -> None:
    out = project.succeeds("audit", "--method", "slots:BySlot", *FEW, "--quick")
    assert "leak" in out and "query order" in out
    outcome = project.run("audit", "slots:BySlot", *FEW, "--quick", "--fail-on-leak")
    assert outcome.status == 1 and "leak" in outcome.out and not outcome.err
    assert len(project.records()) == 2
    clean = project.run("audit", "pixel_centroid", *FEW, "--quick", "--fail-on-leak")
    assert clean.status == 0


def test_what_cannot_be_drawn_is_told_before_the_audit(project: Project) -> None:
    for name, told in (("a.png", "its name must end in .svg"), ("no/a.svg", "there is no folder no")):
        assert told in project.run("audit", "chance", *FEW, "--quick", "--figure", name).sentence
    assert not project.records()


def test_the_report_shows_the_newest_audit_and_no_audit_as_a_result(project: Project) -> None:
    readme, page = project.root / "README.md", project.root / "docs/audit.md"
    readme.write_text("<!-- results:begin all -->\n<!-- results:end -->\n")
    page.parent.mkdir()
    page.write_text("<!-- audit:begin all -->\n<!-- audit:end -->\n")
    project.succeeds("report")
    assert "No audits are recorded yet." in page.read_text()
    project.succeeds("audit", "pixel_centroid", *FEW, "--quick")
    assert "docs/audit.md" in project.run("report", "--check").out
    project.succeeds("report")
    assert "| Pixel nearest centroid | 1 | clean |" in page.read_text()
    assert "[`pixel_centroid/recipe`](" in page.read_text()
    assert "No runs are recorded yet." in readme.read_text()
    assert project.succeeds("report", "--check") == "all tables agree with results/runs\n"


def test_a_bench_is_recorded_and_compared_with_itself_differs_in_nothing(project: Project) -> None:
    out = project.succeeds("bench", "pixel_centroid", *FEW, "--n-sequences", 3)
    assert "record: results/runs/pixel_centroid.recipe." in out
    (path,) = project.records()
    assert "+0.00" in project.succeeds("compare", path, path)
