"""From records to rows: which runs count, and how their figures are written."""

from __future__ import annotations

from dataclasses import replace

from audit_findings import audit_record
from result_records import make_evaluation, make_record

from engram.report.rows import (
    dataset_name,
    our_figure,
    paper_figure,
    published_figure,
    result_rows,
    training_cost,
)
from engram.report.table import percent


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
    assert (our_figure(row), paper_figure(row), published_figure(row)) == ("51.83 ± 0.42", "88.62 ± 0.43 (Table 1)", "")
    assert percent(None, 0.1) == "not a number" and percent(0.5, None, 1) == "50.0"
    assert training_cost(row) == "12.3 (70,000 steps)"
    assert training_cost(replace(row, trained={"iterations": 0})) == "not trained"
    assert dataset_name({"dataset": "miniimagenet", "split": "val"}) == "miniImageNet (val)"


def test_a_long_reason_of_failure_is_cut() -> None:
    (row,) = result_rows([make_record(1, status="failed", error="word " * 40)])
    assert our_figure(row).startswith("**failed**: word word") and our_figure(row).endswith("...")
    assert len(our_figure(row)) == len("**failed**: ") + 90
