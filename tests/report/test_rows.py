"""From records to rows: which runs count, and that rows are made once."""

from __future__ import annotations

import pytest
from audit_findings import audit_record
from result_records import make_evaluation, make_record

from engram.report import rows
from engram.report.rows import result_rows


def test_a_bench_run_shows_what_its_training_cost_and_imports_are_no_rows() -> None:
    trained = make_record(1, make_evaluation(0.4))
    bench = make_record(2, make_evaluation(0.4, n_query=15), kind="bench", training={}, trained_by=trained.run_id)
    imported = make_record(3, make_evaluation(0.9, n_query=3), kind="import")
    rows = result_rows([trained, bench, imported])
    assert [r.record.run_id for r in rows] == [trained.run_id, bench.run_id]
    assert rows[1].trained["seconds"] == 738.0


def test_the_rows_of_the_same_records_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [make_record(1, make_evaluation(0.5)), make_record(2, make_evaluation(0.6))]
    first = rows.result_rows(records)
    monkeypatch.setattr(rows, "_mark_shared_names", None)  # making them again would fail
    assert rows.result_rows(list(records)) == first
    with pytest.raises(TypeError):
        rows.result_rows([*records, make_record(3, make_evaluation(0.7))])


def test_audits_are_no_result_rows() -> None:
    assert result_rows([audit_record(1), audit_record(2, status="failed")]) == []
