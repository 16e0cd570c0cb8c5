"""What a person sees of a plan and of runs as they go."""

from __future__ import annotations

from rich.console import Console
from study_ledger import add_record

from engram.reproduction.display import Progress, duration, show_plan
from engram.reproduction.plan import Place, make_plan
from engram.reproduction.process import Ended
from engram.studies import load_study

LEAK = "cml_bgnn/glyphs_leak_class_order"


def test_records_left_out_and_recipes_not_there_are_shown(place: Place) -> None:
    add_record(place.results, LEAK)
    (place.results / "broken.json").write_text("{")
    console = Console(record=True, width=100, file=open("/dev/null", "w"))  # noqa: SIM115
    show_plan(
        make_plan([load_study("order_leak"), load_study("table2")], "paper", (), place), console, "one after another"
    )
    text = console.export_text()
    assert "broken.json" in text and "no data: tieredimagenet needs its files" in " ".join(text.split())
    assert [duration(s) for s in (5, 300, 9000, 400_000)] == ["5 s", "5 min", "2.5 h", "4.6 days"]


def test_runs_are_told_as_they_start_and_end(place: Place) -> None:
    first, second, third = make_plan([load_study("order_leak")], "short", (), place).to_run
    console = Console(record=True, width=200, file=open("/dev/null", "w"))  # noqa: SIM115
    with Progress((first, second, third), console) as progress:
        progress.start(first)
        progress.end(first, Ended("failed", 75.0, "out of [memory]", node="n2"))
        progress.left(second, "no budget")
        progress.start(third)
    lines = console.export_text().splitlines()
    assert lines[0].startswith(f"[1/3] {first.job.title}; about") and lines[3].startswith(f"[3/3] {third.job.title}")
    assert lines[1] == f"    {first.job.title}: failed after 75 s on n2: out of [memory]"
    assert lines[2] == f"    {second.job.title}: left (no budget)"
