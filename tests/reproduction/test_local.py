"""One run in a process of its own: stopped, saved, and gone on with."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from study_ledger import write_study
from toy_project import Project

from engram.ledger import read_ledger
from engram.ledger.records import RunRecord
from engram.reproduction import local
from engram.reproduction.display import Progress
from engram.reproduction.local import commands_of, run_job
from engram.reproduction.packing import Packing, Room
from engram.reproduction.plan import Place, checkpoint_state, make_plan
from engram.reproduction.process import Ended, Reproduced
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
    wide = "stage_one/mini_resnet12_wide"
    assert encoders == [wide, f"{wide}_strong", f"{wide}_full"], "the second teaches the third"


def test_a_time_box_is_passed_on_and_counts_earlier_calls(place: Place) -> None:
    jobs = make_plan([load_study("order_leak_mini")], "short", (), place).jobs
    command = commands_of(jobs[0].__class__(**{**vars(jobs[0]), "train": True}), place)[0]
    assert command[command.index("--max-minutes") + 1] == "4" and "--whole-run" in command


TIMES = ("seconds", "validation_seconds", "tasks_per_second", "device_use", "resumed_from")


def but_for_times(record: RunRecord) -> dict[str, Any]:
    """What a record tells of what was learned and answered."""
    training = {key: value for key, value in record.training.items() if key not in TIMES}
    evaluations = [(e.protocol, e.tasks_digest, e.metrics) for e in record.evaluations]
    kept = (record.status, record.recipe, record.recipe_digest, record.seed, record.device, record.start)
    return {"record": kept, "training": training, "curves": record.curves, "evaluations": evaluations}


def test_runs_side_by_side_give_the_records_of_runs_in_turn(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("engram.reproduction.packing.os.cpu_count", lambda: 2)
    for seed, name in enumerate(("one", "two")):
        project.write_recipe(("iterations = 2\n", f"iterations = 3\nseed = {seed}\n"), name=name)
    write_study(
        project.root / "mine.toml", ROW.format("one", ""), ROW.format("two", ""), extra=["[short]", "seeds = [7]"]
    )
    out = project.succeeds("reproduce", "mine.toml", "--device", "cpu", "--per-gpu", "2")
    assert "side by side on cpu" in out and "2 finished, 0 failed, 0 left" in out
    for name in ("one", "two"):
        where = ("--device", "cpu", "--results", "alone", "--out", f"alone_{name}")
        project.succeeds("train", f"{name}.toml", "--seed", "7", *where)
    together, alone = (read_ledger(project.root / folder)[0] for folder in ("results/runs", "alone"))
    assert len(together) == 2
    for first, second in zip(
        *(sorted(records, key=lambda r: r.recipe_name) for records in (together, alone)), strict=True
    ):
        assert but_for_times(first) == but_for_times(second)


def test_a_run_waits_for_its_encoder_and_for_features_that_are_being_written(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan([load_study("order_leak")], "short", (), place)
    first, second, third = plan.to_run
    encoder = replace(first, job=replace(first.job, folder="encoder"))
    heads = [replace(p, after="encoder", job=replace(p.job, features=True)) for p in (second, third)]
    plan = replace(plan, jobs=(*heads, encoder))
    spans: dict[str, tuple[float, float]] = {}

    def run_job(planned: Any, *_: Any) -> Ended:
        began = time.monotonic()
        time.sleep(0.05)
        spans[planned.job.key] = (began, time.monotonic())
        return Ended("finished", 0.05)

    monkeypatch.setattr(local, "run_job", run_job)
    outcome, console = Reproduced(plan), Console(quiet=True)
    packing = Packing(plan, [Room("cpu", 10_000.0, 4)], "4")
    grid = local._Grid(
        plan, place, packing, outcome, float("inf"), SimpleNamespace(requested=False), Progress(plan.to_run, console)
    )  # type: ignore[arg-type]
    with ThreadPoolExecutor(3) as threads:
        grid.run(threads)
    one, two, made = (spans[p.job.key] for p in (*heads, encoder))
    assert made[1] <= one[0] and one[1] <= two[0], "the encoder, then who writes features, then who uses them"
    assert len(outcome.finished) == 3 and not outcome.left
