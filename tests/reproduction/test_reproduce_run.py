"""Whole studies of tiny images: runs in processes of their own, failures recorded and skipped, stops resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_ledger import write_study
from toy_project import Project

from engram.ledger import read_ledger
from engram.reproduction.local import run_job
from engram.reproduction.place import Place, checkpoint_state
from engram.reproduction.plan import make_plan
from engram.studies import load_study

ROW = 'label = "{0}"\nshort = "{0}.toml"\ncells = [{{ column = "1-shot"{1} }}]'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Project:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Project(tmp_path, monkeypatch, capfd).with_images()


def call(project: Project, *more: str) -> str:
    return project.succeeds("reproduce", "mine.toml", "--device", "cpu", *more)


def test_a_study_is_run_failures_are_recorded_and_a_second_call_runs_nothing(project: Project) -> None:
    project.write_recipe(name="good")
    project.write_recipe(("n_way = 2\n\n[train]", "n_way = 9\n\n[train]"), name="wide")  # more ways than classes
    ask = ", ask = { slot_order = 'class-order' }"
    other = 'label = "in order"\nshort = "good.toml"\ncells = [{ column = "1-shot"' + ask + " }]"
    write_study(project.root / "mine.toml", ROW.format("wide", ""), ROW.format("good", ""), other)
    out = call(project)
    assert "1 finished, 1 failed, 0 left" in out and "9 ways were asked for" in " ".join(out.split())
    records, problems = read_ledger(project.root / "results/runs")
    assert not problems
    assert sorted((r.kind, r.status) for r in records) == [
        ("bench", "finished"),
        ("train", "failed"),
        ("train", "finished"),
    ]
    assert "9 ways were asked for" in next(r.error for r in records if r.status == "failed")
    page = (project.root / "results/report.html").read_text()
    assert "in order" in page and "failed: " in page and "http" not in page.replace("http://www.w3.org", "")
    write_study(project.root / "mine.toml", ROW.format("good", ""), other)
    before = project.files()
    assert "nothing to run: everything is recorded" in call(project)
    changed = {name for name, data in project.files().items() if before.get(name) != data}
    assert changed <= {"results/report.html"}


def test_a_stopped_run_is_saved_and_gone_on_with(project: Project) -> None:
    """Asked to stop at its first checkpoint, a long training saves; the next plan goes on from there."""
    project.write_recipe(
        ("iterations = 2", "iterations = 1000000"), ("validate_every = 1\n", "validate_every = 5\n"), name="long"
    )
    study = load_study(str(write_study(project.root / "mine.toml", ROW.format("long", ""))))
    place = Place(device="cpu")
    (planned,) = make_plan([study], "short", (), place).to_run
    folder = place.folder(planned.job)
    ended = run_job(planned, place, should_stop=lambda: checkpoint_state(folder) is not None)
    assert ended.status == "stopped"
    (again,) = make_plan([study], "short", (), place).to_run
    assert again.train and "goes on from iteration" in again.note
    assert again.seconds is not None and again.seconds > 60  # a million steps, from the steps of the stopped run
    assert [r.status for r in read_ledger(project.root / "results/runs")[0]] == ["interrupted"]


def test_bad_studies_on_the_command_line_are_one_sentence(project: Project) -> None:
    assert "there is no study 'tabel1'; did you mean 'table1'" in project.run("reproduce", "tabel1").sentence
    write_study(project.root / "mine.toml", ROW.format("absent", ""))
    assert "absent.toml cannot be read" in project.run("reproduce", "mine.toml", "--dry-run").sentence
    assert not project.records()
