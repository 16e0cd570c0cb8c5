"""From records to rows: which runs count, and how their figures are written."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from audit_findings import audit_record
from result_records import make_evaluation, make_record
from rich.console import Console

from engram.card import method_cards
from engram.ledger import Evaluation
from engram.report.figures import PositionCurve
from engram.report.quickstart import QuickstartRow, positions_table, quickstart_table
from engram.report.rows import (
    comparison_table,
    dataset_name,
    our_figure,
    published_figure,
    record_table,
    result_rows,
    training_cost,
)
from engram.report.table import Table, percent


def test_a_bench_run_shows_what_its_training_cost_and_imports_are_no_rows() -> None:
    trained = make_record(1, make_evaluation(0.4))
    bench = make_record(2, make_evaluation(0.4, n_query=15), kind="bench", training={}, trained_by=trained.run_id)
    imported = make_record(3, make_evaluation(0.9, n_query=3), kind="import")
    rows = result_rows([trained, bench, imported])
    assert [r.record.run_id for r in rows] == [trained.run_id, bench.run_id]
    assert rows[1].trained["seconds"] == 738.0


def test_audits_are_no_result_rows() -> None:
    assert result_rows([audit_record(1), audit_record(2, status="failed")]) == []


def test_figures_are_written_in_percent_and_costs_in_minutes() -> None:
    (row,) = result_rows([make_record(1, make_evaluation(0.51834))])
    assert (our_figure(row), published_figure(row)) == ("51.83 ± 0.42", "88.62 ± 0.43 (Table 1)")
    assert percent(None, 0.1) == "not a number" and percent(0.5, None, 1) == "50.0"
    assert training_cost(row) == "12.3 (70,000 steps)"
    assert training_cost(replace(row, trained={"iterations": 0})) == "not trained"
    assert dataset_name({"dataset": "miniimagenet", "split": "val"}) == "miniImageNet (val)"


def test_a_long_reason_of_failure_is_cut() -> None:
    (row,) = result_rows([make_record(1, status="failed", error="word " * 40)])
    assert our_figure(row).startswith("**failed**: word word") and our_figure(row).endswith("...")
    assert len(our_figure(row)) == len("**failed**: ") + 90


ROWS = (
    QuickstartRow("CML-BGNN", "5-way 1-shot", 0.9688, 0.0034, 0.021, 130.0, "memory <by content>, [5] tasks"),
    QuickstartRow("Prototypical Net", "20-way 1-shot", 0.8812, 0.0041, None, None),
    QuickstartRow("Prototypical Net", "5-way 1-shot", 0.9702, 0.0031, 0.012, 48.0, "the note of a system " * 4),
)


def printed(table: Table[Any], width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(table.terminal())
    return console.export_text().splitlines()


def test_the_quickstart_names_systems_whole_and_a_setting_once() -> None:
    lines = printed(quickstart_table(ROWS, "terminal"))
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80 and "…" not in text
    assert re.search(r"CML-BGNN +96\.9 ± 0\.3 +0\.021 +2 min 10 s", text) and "<by content>, [5] tasks" in text
    assert text.count(" 5-way 1-shot") + text.startswith("5-way") + text.count("\n5-way 1-shot") == 1
    assert text.index("97.0 ± 0.3") < text.index("20-way 1-shot")  # rows of a setting stand together


@pytest.mark.parametrize("length", [8, 128])
def test_positions_leave_room_for_every_name(length: int) -> None:
    labels = [card.title for card in method_cards().values()]
    curves = [PositionCurve(label, [1.0] * length, [0.01] * length) for label in labels]
    text = "\n".join(printed(positions_table(curves)))
    words = {word for label in labels for word in label.split()}
    assert "…" not in text and words <= set(text.split())
    short = printed(positions_table([PositionCurve("long", [0.5] * 3, [0.01]), PositionCurve("alone", [0.5] * 2, [])]))
    assert any(
        re.fullmatch(r"alone +50\.0 +50\.0", line.strip()) for line in short
    )  # a shorter stream leaves cells empty


def test_records_and_comparisons_keep_figures_on_one_line() -> None:
    scores = {"nll": 1.0, "ece": 0.1, "brier": 0.5}
    evaluation = make_evaluation(0.41)
    evaluation = Evaluation(**{**vars(evaluation), "metrics": {**evaluation.metrics, **scores}})
    text = "\n".join(printed(record_table(make_record(1, evaluation))))
    assert re.search(r"41\.00 ± 0\.42 +1\.000 +0\.100 +0\.500", text) and "by position 1: " in text
    row = {"protocol": evaluation.protocol, "part": "all", "difference": 0.02, "interval": 0.01, "n": 9}
    text = "\n".join(printed(comparison_table("a", "b", [row, {**row, "interval": 0.03}])))
    assert "+2.00 ± 1.00" in text and "clear" in text and "inside" in text
