"""One run in a process of its own: stopped, saved, and gone on with."""

from __future__ import annotations

from study_ledger import write_study
from toy_project import Project

from engram.ledger import read_ledger
from engram.reproduction.local import run_job
from engram.reproduction.place import Place, checkpoint_state
from engram.reproduction.plan import make_plan
from engram.studies import load_study

ROW = 'label = "{0}"\nshort = "{0}.toml"\ncells = [{{ column = "1-shot"{1} }}]'


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
