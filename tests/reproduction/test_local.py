"""One run in a process of its own: stopped, saved, and gone on with."""

from __future__ import annotations

from study_ledger import write_study
from toy_project import Project

from engram.ledger import read_ledger
from engram.reproduction.local import commands_of, run_job
from engram.reproduction.plan import Place, checkpoint_state, make_plan
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


def test_commands_of_a_head_on_frozen_features(place: Place) -> None:
    jobs = make_plan([load_study("memory_stream_named")], "short", (), place).jobs
    head = next(p for p in jobs if p.job.recipe.name == "content_memory/mini_5w1s_named")
    assert head.state == "no data" and "miniimagenet needs its files" in head.note
    memory = next(p for p in jobs if p.job.recipe.name == "proto_memory/mini_5w1s_frozen")
    commands = commands_of(memory, place)
    assert commands[0][:2] == ("features", "weights/stage_one.mini_conv4") and not memory.train
    assert [c[0] for c in commands[1:]] == ["bench"] * 3
    assert commands[1][:4] == ("bench", "proto_memory", "--recipe", "proto_memory/mini_5w1s_frozen")
    encoders = [p.job.recipe.name for p in jobs if p.job.recipe.method == "stage_one"]
    # Their weights are not there, those of conv4 are in the box.
    assert encoders == ["stage_one/mini_resnet12_wide", "stage_one/mini_resnet12_wide_full"]


def test_a_time_box_is_passed_on_and_counts_earlier_calls(place: Place) -> None:
    jobs = make_plan([load_study("order_leak_mini")], "short", (), place).jobs
    command = commands_of(jobs[0].__class__(**{**vars(jobs[0]), "train": True}), place)[0]
    assert command[command.index("--max-minutes") + 1] == "4" and "--whole-run" in command
