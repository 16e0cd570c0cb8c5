"""A gap to a published figure is called clear only where both were asked alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from study_ledger import add_record

from engram.recipes import load_recipe
from engram.report.beside_paper import against_paper, differing
from engram.report.study.cells import Filled
from engram.report.study.html import cell_html
from engram.report.study.sections import StudyBook
from engram.report.study.tables import ours_text

MAML = "maml/mini_5w1s_20k"


def maml_cell(folder: Path) -> Filled:
    return StudyBook(folder).cells["table1"]["MAML", "1-shot"]


def ask_transductively(folder: Path, accuracy: float, trained_by: str, number: int, **ask: object) -> None:
    """The same weights asked as `engram bench --query-statistics queries` asks them."""
    recipe = load_recipe(MAML)
    changed = replace(recipe, method_settings={**recipe.method_settings, "query_statistics": "queries"})
    add_record(folder, changed, accuracy, ask={"batch_norm": "task", **ask}, number=number, trained_by=trained_by)


def test_another_regime_is_named_and_never_called_clear(tmp_path: Path) -> None:
    add_record(tmp_path, MAML, 0.2, training={"iterations": 20_000})  # the paper has 48.70, queries together
    found = against_paper(maml_cell(tmp_path))
    assert found is not None and found.gap.mean < -found.gap.interval and found.figure is None
    assert found.word == "protocols differ in BatchNorm (task in the paper, running here)"
    assert "clear" not in ours_text(maml_cell(tmp_path), "runs")
    assert "protocols differ in BatchNorm" in cell_html(maml_cell(tmp_path), "runs")


def test_the_same_weights_asked_as_the_paper_are_set_beside_it(tmp_path: Path) -> None:
    trained = add_record(tmp_path, MAML, 0.2, number=1, training={"iterations": 20_000})
    ask_transductively(tmp_path, 0.1, "another run", 2, n_query=1)
    ask_transductively(tmp_path, 0.1, trained.run_id, 3, n_query=15)
    assert "protocols differ" in ours_text(maml_cell(tmp_path), "runs")  # other weights, other queries per class
    ask_transductively(tmp_path, 0.48, trained.run_id, 4, n_query=1)
    found = against_paper(maml_cell(tmp_path))
    assert found is not None and found.figure is not None and found.answer is not None
    assert found.figure.mean == pytest.approx(found.answer.evaluation.metrics["accuracy"])
    assert found.gap.mean == pytest.approx(found.figure.mean - 0.4870) and found.word == "inside the noise"
    text = ours_text(maml_cell(tmp_path), "runs")
    assert f"asked as in the paper [{100 * found.figure.mean:.2f}" in text and "20260101-000004" in text
    assert f"asked so {100 * found.figure.mean:.2f}" in cell_html(maml_cell(tmp_path), "runs")


def test_the_queries_of_the_paper_are_chosen_from_one_record(tmp_path: Path) -> None:
    record = add_record(tmp_path, "tpn/mini_5w1s_short", 0.5)  # asked with 1 and with 15, as its paper
    cell = StudyBook(tmp_path).cells["table1"]["TPN", "1-shot"]
    found = against_paper(cell)
    many = next(e for e in record.evaluations if e.protocol["n_query"] == 15)
    assert cell.protocol["n_query"] == 1 and found is not None and found.figure is not None
    assert found.figure.mean == pytest.approx(many.metrics["accuracy"])


def test_a_cell_asked_as_the_paper_stands_for_itself(tmp_path: Path) -> None:
    add_record(tmp_path, "cml_bgnn/mini_5w1s_public_class_order", 0.5, number=1)
    add_record(tmp_path, "cml_bgnn/mini_5w1s", 0.5, number=2)
    cells = StudyBook(tmp_path).cells["table1"]
    alike, shuffled = (against_paper(cells[row, "1-shot"]) for row in ("CML-BGNN, class order", "CML-BGNN"))
    assert alike is not None and alike.figure is None and alike.word == "clear for this seed"
    assert shuffled is not None and shuffled.word.startswith("protocols differ in query order (class-order in")


def test_only_what_differs_is_told() -> None:
    asked = {"batch_norm": "task", "n_query": 5, "slot_order": "shuffled"}
    told = differing({"batch_norm": "running", "n_query": 1}, asked)
    assert told == "BatchNorm (task in the paper, running here) and queries per class (5 in the paper, 1 here)"
    assert differing({"batch_norm": "task", "n_query": 5}, asked) == ""
