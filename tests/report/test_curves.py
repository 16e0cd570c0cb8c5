"""Curves of training: one drawing for each system, with what was published for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from study_ledger import add_record, cells_of
from svg_words import texts

from engram.ledger import Ledger, RunRecord, trusted_records
from engram.report.book import Book
from engram.report.curves import (
    BOXES,
    MOST_POINTS,
    box_plots,
    curve_figures,
    curve_section,
    draw_curves,
    training_lines,
    training_runs,
    validation,
)
from engram.report.sections import rebuild
from engram.report.svg import standalone
from engram.studies import load_study


def test_a_system_has_its_curve_and_its_published_figure_named_directly(tmp_path: Path) -> None:
    add_record(tmp_path, "maml/mini_5w1s_20k", 0.4)
    found = Book(tmp_path).curves
    assert list(found) == ["maml"] and list(curve_figures(found)) == ["curve_maml.svg"]
    words = texts(draw_curves(found["maml"]))
    assert "1-shot, ours" in words and "1-shot, published 48.70" in words and "training step" in words


def test_rows_of_one_system_share_a_drawing_and_a_published_figure_stands_once(tmp_path: Path) -> None:
    add_record(tmp_path, "cml_bgnn/mini_5w1s", 0.5, number=1)
    add_record(tmp_path, "cml_bgnn/mini_5w1s_no_bayes", 0.5, number=2)  # a variant, no system of its own
    add_record(tmp_path, "cml_bgnn/mini_5w1s_public_class_order", 0.9, number=3)
    words = texts(draw_curves(Book(tmp_path).curves["cml_bgnn"]))
    assert words.count("1-shot, published 88.62") == 1 and not any("w/o" in word for word in words)
    assert {"CML-BGNN, 1-shot", "CML-BGNN, class order, 1-shot"} <= set(words)


def test_the_curve_is_of_the_run_that_is_judged(tmp_path: Path) -> None:
    add_record(tmp_path, "versa/mini_5w1s_frozen", 0.6, number=1)  # what the clean column shows
    run = add_record(tmp_path, recipe := "versa/mini_5w1s_reference_distilled_16k", 0.5, number=2)
    asked = {"n_query": 1, "batch_norm": "task"}
    add_record(tmp_path, recipe, 0.5, ask=asked, number=3, trained_by=run.run_id)
    (curve,) = Book(tmp_path).curves["versa"]
    assert curve.first[0].trainer.recipe_name == recipe


def test_a_long_curve_is_thinned_and_a_drawing_stays_small(tmp_path: Path) -> None:
    looks = list(range(1, 301))
    curves = {"iteration": looks, "validation_accuracy": [0.5] * 300, "validation_interval": [0.01] * 300}
    add_record(tmp_path, "gnn/mini_5w1s_short", 0.5, curves=curves)
    (curve,) = Book(tmp_path).curves["gnn"]
    assert validation(curve).shape == (3, MOST_POINTS) and validation(curve)[0, [0, -1]].tolist() == [1, 300]
    assert len(standalone(draw_curves([curve]))) < 8000


@pytest.mark.parametrize("lost", ["validation_accuracy", "validation_interval"])
def test_without_validation_there_is_no_curve_and_the_page_says_so(tmp_path: Path, lost: str) -> None:
    curves = {"iteration": [1], "validation_accuracy": [0.5], "validation_interval": [0.1], lost: []}
    add_record(tmp_path, "gnn/mini_5w1s_short", 0.5, curves=curves)
    found = Book(tmp_path).curves
    assert not found and "No training of GNN" in curve_section("gnn", found, "figures")


def test_the_page_of_a_method_shows_its_curve(tmp_path: Path) -> None:
    page = tmp_path / "docs/methods/maml.md"
    page.parent.mkdir(parents=True)
    page.write_text("<!-- curve:begin maml -->\n<!-- curve:end -->\n")
    add_record(tmp_path / "results/runs", "maml/mini_5w1s_20k", 0.4)
    assert "docs/figures/curve_maml.svg" in rebuild(tmp_path, False) and rebuild(tmp_path, True) == []
    assert "](../figures/curve_maml.svg)" in page.read_text() and "`maml/mini_5w1s_20k`" in page.read_text()


def training(record: RunRecord, iterations: list[int], accuracy: list[float]) -> RunRecord:
    return replace(record, curves={"iteration": iterations, "validation_accuracy": accuracy})


def test_each_row_has_a_training_run_for_each_seed(tmp_path: Path) -> None:
    for number, seed in enumerate((111, 222)):
        add_record(tmp_path, "egnn/mini_5w1s", seed=seed, number=number)
    ledger = Ledger(trusted_records(tmp_path)[0])
    runs = training_runs(load_study("figure3"), cells_of(tmp_path, "figure3"), ledger, "1-shot")
    assert {label: [r.seed for r in records] for label, records in runs.items()} == {"EGNN†": [111, 222]}
    assert training_runs(load_study("figure3"), cells_of(tmp_path, "figure3"), ledger, "5-shot") == {}


def test_lines_are_the_range_of_seeds_where_all_have_validated(tmp_path: Path) -> None:
    record = add_record(tmp_path, "egnn/mini_5w1s")
    seeds = [training(record, [100, 200], [0.3, 0.4]), training(record, [200, 300], [0.6, 0.9])]
    (curve,) = training_lines({"EGNN†": seeds}, "validation_accuracy")
    assert (curve.label, list(curve.at)) == ("EGNN†, 2 seeds", [200])
    assert curve.accuracy == pytest.approx([0.5]) and curve.interval == pytest.approx([0.1])
    assert training_lines({"EGNN†": seeds}, "validation_edge_accuracy") == []


def test_boxes_name_the_systems_and_the_parts_of_training(tmp_path: Path) -> None:
    runs = {label: [add_record(tmp_path, "egnn/mini_5w1s", number=n)] for n, label in enumerate(("first", "second"))}
    words = texts(box_plots(runs, "1-shot"))
    assert {"first", "second", "thousands of iterations, up to"} <= set(words)
    assert words[:BOXES] == ["0.5", "1", "1.5", "2", "2.5", "3"]


def test_a_legend_has_two_columns_only_where_names_are_short(tmp_path: Path) -> None:
    run = add_record(tmp_path, "egnn/mini_5w1s")

    def height(*labels: str) -> str:
        return box_plots({label: [run] for label in labels}, "1-shot").partition(' height="')[2].partition('"')[0]

    assert height("first", "second") == height("alone") == "267"
    assert height("first", "a name that is far too long for half a drawing") == "284"
