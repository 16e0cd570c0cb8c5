"""Lines of figures: one look for a system wherever it is drawn, six to a panel, names that do not cover each other."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from engram.report.figures import PositionCurve, accuracy_by_position
from engram.report.lines import COLOURS, MOST, POINT, draw_line, look_of, name_lines, panels, place_labels, spread
from engram.report.stream_figures import Line, draw
from engram.report.svg import SERIES, new_figure

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


@pytest.mark.parametrize("seed", range(6))
def test_no_label_covers_another_or_a_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = np.concatenate([rng.uniform(0, 350, (12, 2)), 175 + rng.normal(0, 25, (12, 2))])
    sizes = [(15.0, 10.0)] * len(points)
    centres = place_labels(points, sizes)
    boxes = [(c, (7.5, 5.0)) for c in centres] + [(p, (POINT, POINT)) for p in points]
    for n, (centre, half) in enumerate(boxes[: len(points)]):
        for m, (other, other_half) in enumerate(boxes):
            if n != m:
                apart = np.abs(centre - other) >= np.add(half, other_half) - 1e-9
                assert apart.any(), (seed, n, m)
    assert np.abs(centres - points).max() < 70
