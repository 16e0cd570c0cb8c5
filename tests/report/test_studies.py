"""Tables of studies: figures, differences, and what to run where there is none."""

from __future__ import annotations

import re
from pathlib import Path

from study_ledger import add_record, cells_of

from engram.ledger import Ledger, trusted_records
from engram.report.cells import compare
from engram.report.studies import comparisons_table, overview_table, study_table
from engram.report.systems import systems_table
from engram.studies import load_study


def test_rows_not_run_give_the_command_and_rows_without_recipe_say_so(tmp_path: Path) -> None:
    table = study_table(load_study("table1"), cells_of(tmp_path, "table1"), "runs", "docs").markdown()
    assert "not run: `engram reproduce table1 --scale paper`" in table
    assert re.search(r"\| CML-BGNN \(slots.*88\.62 ± 0\.43 \| not run: `engram reproduce table1 --scale short`", table)
    add_record(tmp_path, "cml_bgnn/mini_5w1s_10k", status="failed", error="out of memory")
    cells = cells_of(tmp_path, "table1")
    assert "failed: out of memory" in study_table(load_study("table1"), cells, "runs", "docs").markdown()


def test_figures_differences_and_words_of_a_table(tmp_path: Path) -> None:
    add_record(tmp_path, "cml_bgnn/mini_5w1s", 0.5, number=1)
    add_record(tmp_path, "cml_bgnn/mini_5w1s_no_bayes", 0.5, seed=111, number=2)
    cells = cells_of(tmp_path, "table1")
    table = study_table(load_study("table1"), cells, "runs", "docs").markdown()
    assert "differ in query order" in table and "full schedule" in table and "runs/cml_bgnn.mini_5w1s." in table
    found = compare(cells["CML-BGNN", "1-shot"], cells["CML-BGNN w/o B", "1-shot"])
    assert found is not None and found.paired  # both answered the same frozen tasks
    assert "same tasks" in comparisons_table(load_study("table1"), cells).markdown()
    records = trusted_records(tmp_path)[0]
    systems = systems_table(load_study("table1"), cells, Ledger(records), "runs", {})
    assert systems.count("\n| ") >= 24 and "Published, %" in systems


def test_a_grid_has_a_line_for_each_row_and_heads_each_group_once(tmp_path: Path) -> None:
    study = load_study("table1")
    grid = study_table(study, cells_of(tmp_path, "table1"), "runs", "report").html()
    assert grid.count('<th scope="row">') == len(study.rows)
    heads = re.findall(r'scope="rowgroup" colspan="3">([^<]*)<', grid)
    assert heads == list(dict.fromkeys(row.group for row in study.rows))


def test_comparisons_and_the_overview_count_what_is_recorded(tmp_path: Path) -> None:
    study = load_study("table1")
    assert not comparisons_table(study, cells_of(tmp_path, "table1")).rows
    add_record(tmp_path, "cml_bgnn/mini_5w1s", 0.7, number=1)
    add_record(tmp_path, "cml_bgnn/mini_5w1s_no_bayes", 0.4, number=2)
    cells = cells_of(tmp_path, "table1")
    assert '<span class="badge good">clear for this seed</span>' in comparisons_table(study, cells).html()
    assert re.search(rf">2 of {len(cells)}<", overview_table([study], {"table1": cells}, "report").html())
