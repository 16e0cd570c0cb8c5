"""Figures: well-formed, deterministic, drawn in the page's colours, and showing what they were given."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from study_ledger import add_record, cells_of
from svg_words import texts

from engram.errors import EngramError
from engram.ledger import Ledger, RunRecord, trusted_records
from engram.report.episode import EpisodePicture, adjacency_maps, episode_matrix
from engram.report.figures import (
    BOXES,
    CostPoint,
    PositionCurve,
    ReliabilityCurve,
    accuracy_by_position,
    box_plots,
    cost_figure,
    cost_points,
    position_curves,
    reliability_curves,
    reliability_diagram,
    training_lines,
    training_runs,
    validation_curves,
)
from engram.report.svg import INK, SERIES
from engram.studies import load_study

RELIABILITY = ReliabilityCurve("ProtoNet", [None, 0.5, 0.9], [None, 0.4, 0.85], [0, 10, 30], 0.0625)


def drawings(picture: EpisodePicture) -> list[str]:
    curves = [PositionCurve("named", [0.5, 0.6, 0.7], [0.01] * 3), PositionCurve("alone", [0.5, 0.5, 0.5], [0.01] * 3)]
    return [
        accuracy_by_position(curves),
        validation_curves([PositionCurve("L = 3", [0.4, 0.5], [0.0, 0.0], at=[100, 200])]),
        reliability_diagram(RELIABILITY),
        episode_matrix(picture),
        *adjacency_maps(picture),
    ]


def test_every_drawing_is_well_formed_and_takes_the_pages_colours(picture: EpisodePicture) -> None:
    for svg in drawings(picture):
        root = ElementTree.fromstring(svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("role") == "img" and root.get("aria-label")
        assert "currentColor" in svg
        assert not any(marker in svg for marker in (INK, *SERIES)), "a marker colour was left in"
        assert "#ffffff" not in svg, "the background is not transparent"
        assert not re.search(r'(?:href|src)="(?!#|data:image/png)', svg)


def test_drawings_are_repeatable_and_share_no_identifier(picture: EpisodePicture) -> None:
    first, again = drawings(picture), drawings(picture)
    assert first == again
    identifiers = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in first[:4]]
    assert sum(map(len, identifiers)) == len(set.union(*identifiers))
    for svg, own in zip(first[:4], identifiers, strict=True):
        used = {a or b for a, b in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg)}
        assert used == own


def test_curves_are_named_and_their_axis_is_in_percent() -> None:
    words = texts(accuracy_by_position([PositionCurve("named stream", [0.5, 0.7], [0.01, 0.01])]))
    assert "named stream" in words and "60 %" in words and "task in the stream" in words


def test_unequal_lengths_and_no_curves_are_told() -> None:
    with pytest.raises(EngramError, match="'a': 2 positions, 2 accuracies and 1 intervals"):
        accuracy_by_position([PositionCurve("a", [0.5, 0.6], [0.1])])
    with pytest.raises(EngramError, match="no curve"):
        validation_curves([])
    with pytest.raises(EngramError, match="3 confidences, 2 accuracies"):
        reliability_diagram(replace(RELIABILITY, accuracy=[0.4, 0.85]))


def test_reliability_says_the_error_and_leaves_empty_bins_out() -> None:
    assert {"ECE 0.062", "ProtoNet", "confidence"} <= set(texts(reliability_diagram(RELIABILITY)))
    empty = ReliabilityCurve("nothing", [None], [None], [0], 0.0)
    ElementTree.fromstring(reliability_diagram(empty))  # no answers at all is still a drawing


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
