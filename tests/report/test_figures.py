"""Figures: well-formed, deterministic, drawn in the page's colours, and showing what they were given."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from svg_words import texts

from engram.errors import EngramError
from engram.report.episode import EpisodePicture, adjacency_maps, episode_matrix
from engram.report.figures import (
    PositionCurve,
    ReliabilityCurve,
    accuracy_by_position,
    reliability_diagram,
    validation_curves,
)
from engram.report.svg import INK, SERIES

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
