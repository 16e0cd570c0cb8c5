"""Tables of studies: figures, differences, and what to run where there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from study_ledger import add_record, cells_of

from engram.report.cells import compare
from engram.report.studies import badge, cell_html, comparisons_table, overview_table, study_markdown, study_table
from engram.report.table import Column, Table
from engram.studies import load_study


def test_rows_not_run_give_the_command_and_rows_without_recipe_say_so(tmp_path: Path) -> None:
    table = study_table(load_study("table1"), cells_of(tmp_path, "table1"), "runs", "docs").markdown()
    assert table.count("`engram reproduce table1 --scale paper`") == 1  # in a note that many cells share
    assert re.search(r"\| CML-BGNN \(quer.*88\.62 ± 0\.43 \| not run <sup>\d</sup>", table)
    add_record(tmp_path, "cml_bgnn/mini_5w1s_10k", status="failed", error="out of memory")
    cells = cells_of(tmp_path, "table1")
    assert "failed: out of memory" in study_table(load_study("table1"), cells, "runs", "docs").markdown()


def test_figures_differences_and_words_of_a_table(tmp_path: Path) -> None:
    add_record(tmp_path, "cml_bgnn/mini_5w1s", 0.5, number=1)
    add_record(tmp_path, "cml_bgnn/mini_5w1s_no_bayes", 0.5, seed=111, number=2)
    cells = cells_of(tmp_path, "table1")
    table = study_table(load_study("table1"), cells, "runs", "docs").markdown()
    assert "differ in query order" in table and "full schedule" in table and "runs/cml_bgnn.mini_5w1s." in table
    compared = compare(cells["CML-BGNN", "1-shot"], cells["CML-BGNN w/o B", "1-shot"])
    assert compared is not None and compared.found.paired  # both answered the same frozen tasks
    assert "same tasks" in comparisons_table(load_study("table1"), cells).markdown()


def test_a_study_nobody_began_shows_the_published_figures_folded_and_the_command_once(tmp_path: Path) -> None:
    study = load_study("table2")
    text = study_markdown(study, cells_of(tmp_path, "table2"), "runs")
    assert text.count("engram reproduce table2") == 1 and "not run" not in text and "ours" not in text.split("|", 1)[1]
    assert '<details markdown="1">' in text and all(f"| {row.label}" in text for row in study.rows)
    add_record(tmp_path, study.rows[-1].cells[0].recipe, status="failed", error="out of memory")
    assert "failed: out of memory" in study_markdown(study, cells_of(tmp_path, "table2"), "runs")
    assert "<details" not in study_markdown(study, cells_of(tmp_path, "table2"), "runs")


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


ORDERED = "cml_bgnn/mini_5w1s_public_class_order"


def badges(html: str) -> dict[str, str]:
    """Words -> kind."""
    found = re.findall(r'<span class="badge (\w*)"[^>]*>([^<]*)</span>', html)
    return {words: kind for kind, words in found}


def test_badges_tell_scale_order_seeds_and_audit(tmp_path: Path) -> None:
    for number, seed in enumerate((111, 222)):
        add_record(tmp_path, ORDERED, 0.9, seed=seed, number=number)
    cell = cells_of(tmp_path, "table1")["CML-BGNN, class order", "1-shot"]
    told = badges(cell_html(cell, "../runs"))
    assert told["full schedule, 70,000 iterations"] == "good" and told["class order"] == "bad"
    assert told["2 seeds"] == "good" and told["no audit"] == "" and told["T = 8"] == ""
    findings = [{"probe": probe, "verdict": "leak"} for probe in ("noise", "position")]
    add_record(tmp_path, ORDERED, kind="audit", number=3, audit=findings)
    cell = cells_of(tmp_path, "table1")["CML-BGNN, class order", "1-shot"]
    assert badges(cell_html(cell, "../runs"))["audit: 2 leaks"] == "bad"


def test_a_cell_draws_ours_as_a_bar_the_papers_as_a_tick_and_links_its_records(tmp_path: Path) -> None:
    record = add_record(tmp_path, ORDERED, 0.9)
    cell = cells_of(tmp_path, "table1")["CML-BGNN, class order", "1-shot"]
    html = cell_html(cell, "../runs")
    assert cell.estimate is not None
    bar = f'<i class="marked" style="width: {100 * cell.estimate.mean:.1f}%"></i><b style="left: 88.6%"></b>'
    assert bar in html and "paper 88.62 ± 0.43" in html
    assert re.findall(r'href="([^"]+)">record<', html) == [f"../runs/cml_bgnn.{ORDERED[9:]}.{record.run_id}.json"]


def test_an_empty_cell_has_the_papers_figure_and_the_command(tmp_path: Path) -> None:
    html = cell_html(cells_of(tmp_path, "table1")["CML-BGNN", "1-shot"], "runs")
    assert '<span class="todo">not run</span>' in html and "paper 88.62 ± 0.43" in html
    assert "<code>engram reproduce table1 --scale short</code>" in html


@pytest.mark.parametrize("given", ["a < b", 'say "x"'])
def test_words_are_escaped(given: str) -> None:
    assert given not in Table([Column(given, lambda row: given)], [given, 1]).html().replace('scope="col"', "")
    assert given not in badge(given, "", given)
