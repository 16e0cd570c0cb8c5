"""Studies as HTML: badges say how a cell was measured, empty cells what to run, and nothing given becomes markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from study_ledger import add_record, cells_of

from engram.report.cell_html import badge, cell_html
from engram.report.table import Column, Table

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
