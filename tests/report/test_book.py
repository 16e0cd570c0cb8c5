"""Sections of docs that studies fill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from study_ledger import add_record

from engram.errors import EngramError, EngramWarning
from engram.ledger import record_path
from engram.report.book import Book
from engram.report.sections import rebuild


def test_sections_of_docs_name_known_studies_only(tmp_path: Path) -> None:
    (tmp_path / "results/runs").mkdir(parents=True)
    (tmp_path / "README.md").write_text("<!-- study:begin tabel1 -->\n<!-- study:end -->\n")
    with pytest.raises(EngramError, match="names no known section; did you mean 'table1'"):
        rebuild(tmp_path, False)
    (tmp_path / "README.md").write_text("<!-- study:begin overview -->\n<!-- study:end -->\n")
    assert rebuild(tmp_path, False) == ["README.md", "results/summary.csv"] and rebuild(tmp_path, True) == []
    assert "`table1`" in (tmp_path / "README.md").read_text()
    assert "| Study |" in Book(tmp_path / "results/runs").study_section("overview", "")


def test_a_row_without_its_per_task_results_says_so_and_the_others_stand(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("<!-- study:begin table1 -->\n<!-- study:end -->\n")
    runs = tmp_path / "results/runs"
    lost = add_record(runs, "gnn/mini_5w1s_short", 0.5, number=1)
    add_record(runs, "tpn/mini_5w1s_short", 0.6, number=2)
    (runs / lost.evaluations[0].tasks_file).unlink()
    rebuild(tmp_path, False)
    rows = (tmp_path / "README.md").read_text().splitlines()
    assert f"run {lost.run_id} is left out, per-task results cannot be read" in next(r for r in rows if "| [GNN]" in r)
    assert "(results/runs/tpn.mini_5w1s_short." in next(r for r in rows if "| [TPN]" in r)
    add_record(runs, "gnn/mini_5w1s_short", 0.4, number=3)
    rebuild(tmp_path, False)
    text = (tmp_path / "README.md").read_text()
    row = next(r for r in text.splitlines() if "| [GNN]" in r)
    assert "20260101-000003" in row and f"</sup> run {lost.run_id} is left out" in text


def test_an_edited_record_is_named_and_in_no_table(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("<!-- study:begin table1 -->\n<!-- study:end -->\n")
    record = add_record(tmp_path / "results/runs", "gnn/mini_5w1s_short", 0.5)
    file = record_path(tmp_path / "results/runs", record)
    raw = json.loads(file.read_text())
    raw["evaluations"][0]["metrics"]["accuracy"] = 0.99
    file.write_text(json.dumps(raw))
    with pytest.raises(EngramError, match="do not count: .*states an accuracy of 0.99|seal"):
        rebuild(tmp_path, True)
    with pytest.warns(EngramWarning, match="not in the tables: .*seal"):
        rebuild(tmp_path, False)
    assert record.run_id not in (tmp_path / "README.md").read_text()
