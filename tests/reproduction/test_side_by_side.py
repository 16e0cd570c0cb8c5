"""Runs beside each other learn what they learn in turn, and wait for what they need."""

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
from engram.reproduction import side_by_side
from engram.reproduction.display import Progress
from engram.reproduction.packing import Packing, Room
from engram.reproduction.plan import Place, make_plan
from engram.reproduction.process import Ended, Reproduced
from engram.studies import load_study

ROW = 'label = "{0}"\nshort = "{0}.toml"\ncells = [{{ column = "1-shot" }}]'
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
    write_study(project.root / "mine.toml", ROW.format("one"), ROW.format("two"), extra=["[short]", "seeds = [7]"])
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

    monkeypatch.setattr(side_by_side, "run_job", run_job)
    outcome, console = Reproduced(plan), Console(quiet=True)
    packing = Packing(plan, [Room("cpu", 10_000.0, 4)], "4")
    grid = side_by_side._Grid(
        plan, place, packing, outcome, float("inf"), SimpleNamespace(requested=False), Progress(plan.to_run, console)
    )  # type: ignore[arg-type]
    with ThreadPoolExecutor(3) as threads:
        grid.run(threads)
    one, two, made = (spans[p.job.key] for p in (*heads, encoder))
    assert made[1] <= one[0] and one[1] <= two[0], "the encoder, then who writes features, then who uses them"
    assert len(outcome.finished) == 3 and not outcome.left
