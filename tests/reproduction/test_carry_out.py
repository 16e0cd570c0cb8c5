"""Whole studies: runs in processes of their own, failures recorded and skipped, bad calls told before anything runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from subprocess import run

import pytest
from study_ledger import add_record, write_study
from toy_project import Project

from engram.errors import EngramError
from engram.ledger import read_ledger
from engram.reproduction.carry_out import check_budget, open_studies, reproduce
from engram.reproduction.plan import Place, make_plan
from engram.reproduction.process import environment
from engram.studies import load_study

ROW = 'label = "{0}"\nshort = "{0}.toml"\ncells = [{{ column = "1-shot"{1} }}]'


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


def test_bad_studies_on_the_command_line_are_one_sentence(project: Project) -> None:
    assert "there is no study 'tabel1'; did you mean 'table1'" in project.run("reproduce", "tabel1").sentence
    write_study(project.root / "mine.toml", ROW.format("absent", ""))
    assert "absent.toml cannot be read" in project.run("reproduce", "mine.toml", "--dry-run").sentence
    assert not project.records()


def test_a_budget_too_small_for_one_run_is_refused(place: Place) -> None:
    add_record(
        place.results,
        "cml_bgnn/glyphs_leak",
        seed=5,
        training={"iterations": 200, "seconds": 600.0},
        device="cpu, 2 threads",
    )
    plan = make_plan([load_study("order_leak")], "short", (), place)
    with pytest.raises(
        EngramError, match="a budget of 2 minutes is too small for one run: the shortest missing one, cml"
    ):
        check_budget(plan, 2.0)
    with pytest.raises(EngramError, match="budget = -1 minutes but it must be above 0"):
        check_budget(plan, -1.0)
    check_budget(plan, 20.0)
    check_budget(plan, None)


def test_bad_calls_get_one_sentence(place: Place, tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="there is no study 'tabel1'; did you mean 'table1'"):
        reproduce(["tabel1"], dry_run=True)
    with pytest.raises(EngramError, match="which study"):
        open_studies([])
    row = 'label = "mine"\ncells = [{ column = "1-shot", recipe = "proto_net/glyphs_quik" }]'
    mine = write_study(tmp_path / "mine.toml", row)
    with pytest.raises(EngramError, match="there is no recipe 'proto_net/glyphs_quik'; did you mean"):
        reproduce([str(mine)], dry_run=True)
    with pytest.raises(EngramError, match="seeds = 1, 1 but they must be different"):
        reproduce(["table1"], seeds=(1, 1), dry_run=True)


def test_a_dry_run_of_all_is_fast_and_needs_no_torch(place: Place) -> None:
    code = (
        "import sys, time, engram.reproduction.carry_out as r; r.reproduce(['all'], dry_run=True); "
        "print('torch' in sys.modules, time.process_time())"
    )
    began = time.monotonic()
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    torch, seconds = done.stdout.split()[-2:]
    assert torch == "False" and float(seconds) < 3, (done.stdout, time.monotonic() - began)
