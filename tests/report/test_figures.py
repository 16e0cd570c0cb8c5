"""Figures: well-formed, deterministic, drawn in the page's colours, and showing what they were given."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from study_ledger import add_record, cells_of
from svg_words import texts

from engram.errors import EngramError
from engram.report.episode import EpisodePicture, adjacency_maps, episode_matrix
from engram.report.figures import (
    COLOURS,
    MOST,
    PositionCurve,
    ReliabilityCurve,
    accuracy_by_position,
    draw_line,
    look_of,
    name_lines,
    panels,
    position_curves,
    reliability_curves,
    reliability_diagram,
    spread,
    validation_curves,
)
from engram.report.stream_figures import Line, draw
from engram.report.svg import INK, SERIES, new_figure
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


def test_positions_and_reliability_come_from_the_first_seed(tmp_path: Path) -> None:
    record = add_record(tmp_path, "cml_bgnn/glyphs_leak_class_order", 0.5, rise=0.4)
    cells = cells_of(tmp_path, "order_leak")
    (curve,) = position_curves(load_study("order_leak"), cells)
    metrics = record.evaluations[0].metrics
    assert curve.label == "trained and tested in class order"
    assert curve.accuracy == pytest.approx(metrics["accuracy_by_position"])
    (first, *_) = reliability_curves([cell for cell in cells.values() if cell.answers])
    assert first.ece == pytest.approx(metrics["ece"]) and first.confidence == pytest.approx(
        metrics["reliability"]["confidence"]
    )


TOGETHER = (
    ("CML-BGNN, memory by content, transductive", "CML-BGNN, memory by content", "CML-BGNN, memory by slot"),
    ("EGNN†", "CML-BGNN", "CML-BGNN, class order"),
    ("CML-BGNN-L-1", "CML-BGNN-L-2", "CML-BGNN-L-3"),
    ("trained and tested in class order", "the same weights, shuffled", "trained and tested shuffled", "no history"),
    ("memory by content, conv4", "memory by content, history erased, conv4", "memory by content, resnet12_wide"),
    ("Prototype memory", "k-nearest memory", "Label propagation memory, transductive", "Prototypical Net", "EGNN"),
)


@pytest.mark.parametrize("labels", TOGETHER)
def test_lines_that_are_drawn_together_look_different(labels: tuple[str, ...]) -> None:
    assert len({look_of(label) for label in labels}) == len(labels)


def test_colour_tells_the_system_and_dashes_the_variant() -> None:
    ours = [
        look_of(label) for label in ("CML-BGNN", "CML-BGNN, history erased", "memory by content", "each task afresh")
    ]
    assert {look.colour for look in ours} == {COLOURS["cml_bgnn"]}
    assert ours[1].dash == ours[3].dash == look_of("Prototype memory, history erased").dash != ours[0].dash
    assert look_of("prototype memory, conv4").colour == look_of("Prototype memory").colour == COLOURS["proto_memory"]
    assert look_of("mine:Own") == look_of("mine:Own") and look_of("mine:Own").colour < len(SERIES)


def test_each_line_is_drawn_in_its_look_and_named_at_its_end() -> None:
    axes = new_figure(400, 200).subplots()
    for number, label in enumerate(("EGNN", "CML-BGNN, class order")):
        draw_line(axes, label, np.array([1.0, 2.0]), np.array([0.5, 0.6 + number / 10]), np.array([0.01, 0.01]))
    drawn = [(line.get_color(), line.get_marker()) for line in axes.get_lines()]
    assert drawn == [(SERIES[COLOURS["egnn"]], "o"), (SERIES[COLOURS["cml_bgnn"]], "o")]
    name_lines(axes, 150)
    named = {text.get_text(): text for text in axes.texts}
    assert list(named) == ["EGNN", "CML-BGNN, class order"] and named["EGNN"].get_color() == drawn[0][0]
    assert named["EGNN"].get_position()[1] < named["CML-BGNN, class order"].get_position()[1]


def test_a_seventh_line_goes_to_another_panel() -> None:
    assert [len(p) for p in panels(range(13))] == [6, 6, 1] and MOST == 6
    six, seven = (
        accuracy_by_position([PositionCurve(f"system {n}", [0.5, 0.6], [0.01] * 2) for n in range(count)])
        for count in (6, 7)
    )
    heights = [int(re.search(r'height="(\d+)"', drawing).group(1)) for drawing in (six, seven)]  # type: ignore[union-attr]
    assert heights[1] > 1.5 * heights[0] and all(f"system {n}" in seven for n in range(7))


def test_streams_split_by_memory_where_they_are_too_many() -> None:
    values = np.array([0.4, 0.5])
    lines = [Line(f"system {n}", n < 5, ("named", "conv4"), ["1", "2"], values + n / 50, values / 50) for n in range(8)]
    many, few = draw(lines, "task", "Accuracy"), draw(lines[3:], "task", "Accuracy")
    assert "named, conv4: with memory" in many and "named, conv4: without memory" in many
    assert "named, conv4" in few and "memory" not in few


def test_labels_keep_their_distance_and_order() -> None:
    places = spread([0.5, 0.52, 0.1, 0.51], 0.1)
    assert places == pytest.approx([0.5, 0.7, 0.1, 0.6])
    high = spread([0.97, 0.98, 0.99], 0.1)
    assert high == pytest.approx([0.8, 0.9, 1.0])
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(sorted(high))) and spread([], 0.1) == []
