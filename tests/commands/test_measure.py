"""Commands that ask a model questions: a whole audit, its exit status, and its section of the docs."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from toy_project import Project

from engram.ledger import read_record

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


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    project = Project(tmp_path, monkeypatch, capfd).with_images()
    (project.root / "slots.py").write_text(OWN_CODE)
    return project


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
    assert "| Pixel nearest centroid, [`pixel_centroid/recipe`](" in page.read_text()
    assert "No runs are recorded yet." in readme.read_text()
    assert project.succeeds("report", "--check") == "all tables agree with results/runs\n"


def test_a_bench_is_recorded_and_compared_with_itself_differs_in_nothing(project: Project) -> None:
    out = project.succeeds("bench", "pixel_centroid", *FEW, "--n-sequences", 3)
    assert "record: results/runs/pixel_centroid.recipe." in out
    (path,) = project.records()
    assert "+0.00" in project.succeeds("compare", path, path)
