"""The report's style sheet: that of every page and more, with a rule for every class that cells use."""

from __future__ import annotations

import re
from pathlib import Path

from study_ledger import add_record, cells_of

from engram.report.study.html import study_grid
from engram.report.study.style import STUDY_STYLE
from engram.report.style import STYLE
from engram.studies import load_study


def test_it_goes_on_from_the_sheet_of_every_page() -> None:
    added = STUDY_STYLE.removeprefix(STYLE)
    assert added != STUDY_STYLE and added.count("{") == added.count("}") > 20
    light, dark = (set(re.findall(r"(--\w+): #", rules)) for rules in added.splitlines()[1:3])
    assert light == dark == {"--good", "--bad", "--warn", "--info"}


def test_every_class_of_a_grid_has_a_rule(tmp_path: Path) -> None:
    add_record(tmp_path, "cml_bgnn/mini_5w1s_public_class_order", 0.9)
    grid = study_grid(load_study("table1"), cells_of(tmp_path, "table1"), "runs")
    used = {name for names in re.findall(r'class="([^"]+)"', grid) for name in names.split()}
    assert {"figure", "meter", "marked", "badge", "todo"} <= used
    assert not {name for name in used if not re.search(rf"\.{name}\b", STUDY_STYLE)}
