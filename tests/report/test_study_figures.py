"""Figures of studies: curves come from the runs that cells show, and drawings name what they were given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from study_ledger import add_record, cells_of
from svg_words import texts

from engram.ledger import Ledger, RunRecord, trusted_records
from engram.report.study_figures import (
    BOXES,
    CostPoint,
    box_plots,
    cost_figure,
    cost_points,
    position_curves,
    reliability_curves,
    training_lines,
    training_runs,
)
from engram.studies import load_study

ORDERED = "cml_bgnn/mini_5w1s_public_class_order"


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


def test_positions_and_reliability_come_from_the_first_seed(tmp_path: Path) -> None:
    record = add_record(tmp_path, "cml_bgnn/glyphs_leak_class_order", 0.5, rise=0.4)
    cells = cells_of(tmp_path, "order_leak")
    (curve,) = position_curves(load_study("order_leak"), cells)
    metrics = record.evaluations[0].metrics
    assert curve.label == "trained and tested in class order" and curve.accuracy == metrics["accuracy_by_position"]
    (first, *_) = reliability_curves([cell for cell in cells.values() if cell.answers])
    assert first.ece == metrics["ece"] and first.confidence == metrics["reliability"]["confidence"]


def test_costs_are_ordered_by_minutes_and_mark_class_order(tmp_path: Path) -> None:
    add_record(tmp_path, ORDERED, 0.9, number=1, training={"iterations": 70000, "seconds": 600.0})
    add_record(tmp_path, "egnn/mini_5w1s", 0.5, number=2, training={"iterations": 100000, "seconds": 120.0})
    cells = cells_of(tmp_path, "table1")
    points = cost_points([cells[row, "1-shot"] for row in ("CML-BGNN, class order", "EGNN†")])
    assert [(p.label, p.minutes, p.marked) for p in points] == [
        ("EGNN†", 2.0, False),
        ("CML-BGNN, class order", 10.0, True),
    ]


def test_the_cost_figure_numbers_its_points_and_ticks_minutes() -> None:
    points = [
        CostPoint(f"system {n}", minutes, 0.5 + 0.1 * n, 0.01, n == 2) for n, minutes in enumerate((2.0, 9.0, 40.0))
    ]
    drawing = cost_figure(points)
    assert texts(drawing)[-3:] == ["1", "2", "3"] and {"2", "5", "10", "20", "50"} <= set(texts(drawing))
    assert "--series-2" in drawing and "--series-2" not in cost_figure(points[:2])


def test_a_legend_has_two_columns_only_where_names_are_short(tmp_path: Path) -> None:
    run = add_record(tmp_path, "egnn/mini_5w1s")

    def height(*labels: str) -> str:
        return box_plots({label: [run] for label in labels}, "1-shot").partition(' height="')[2].partition('"')[0]

    assert height("first", "second") == height("alone") == "267"
    assert height("first", "a name that is far too long for half a drawing") == "284"
