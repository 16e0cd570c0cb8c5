"""Figures: well-formed, deterministic, drawn in the page's colours, and showing what they were given."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from engram.errors import EngramError
from engram.report.contents import EpisodePicture, PositionCurve, ReliabilityCurve, ValidationCurve, class_letter
from engram.report.episode import shown_queries
from engram.report.figures import (
    accuracy_by_position,
    adjacency_maps,
    episode_matrix,
    reliability_diagram,
    validation_curves,
)
from engram.report.svg import INK, SERIES, new_figure, style_axes, to_svg

Make = Callable[..., EpisodePicture]
RELIABILITY = ReliabilityCurve("ProtoNet", [None, 0.5, 0.9], [None, 0.4, 0.85], [0, 10, 30], 0.0625)


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(e.itertext()).strip() for e in root.iter("{http://www.w3.org/2000/svg}text")]


def drawings(picture: EpisodePicture) -> list[str]:
    curves = [PositionCurve("named", [0.5, 0.6, 0.7], [0.01] * 3), PositionCurve("alone", [0.5, 0.5, 0.5], [0.01] * 3)]
    return [
        accuracy_by_position(curves),
        validation_curves([ValidationCurve("L = 3", [100, 200], [0.4, 0.5])]),
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


def test_the_episode_shows_all_images_and_the_true_classs_probability(picture: EpisodePicture) -> None:
    svg = episode_matrix(picture)
    assert svg.count("<image") == 10
    order = np.argsort(picture.query_labels)
    expected = [f"{100 * picture.probabilities[q, picture.query_labels[q]]:.0f} %" for q in order]
    assert [t for t in texts(svg) if t.endswith("%")] == expected
    assert [t for t in texts(svg) if t in "ABCDE"] == list("ABCDE")


def test_a_wrong_winner_is_drawn_in_the_second_colour(picture: EpisodePicture) -> None:
    truth = np.eye(5)[picture.query_labels]
    wrong = np.roll(truth, 1, axis=1)
    assert "--series-2" not in episode_matrix(replace(picture, probabilities=truth))
    assert "--series-2" in episode_matrix(replace(picture, probabilities=wrong))


def test_colour_images_and_unlabelled_supports_are_drawn(picture: EpisodePicture) -> None:
    colour = np.repeat(picture.images_support[..., None], 3, axis=-1)
    labels = picture.support_labels.copy()
    labels[0] = -1
    changed = replace(picture, images_support=colour, support_labels=labels)
    assert episode_matrix(changed).count("<image") == 9
    assert "?" in texts(adjacency_maps(changed)[0])


def test_many_queries_are_thinned_evenly_and_sorted_by_class(make_picture: Make) -> None:
    picture = make_picture(n_query=15)
    shown = picture.query_labels[shown_queries(picture, 10)]
    assert len(shown) == 10 and (np.diff(shown) >= 0).all() and set(shown) == set(range(5))


def test_heat_maps_are_one_per_layer_with_letters(picture: EpisodePicture, make_picture: Make) -> None:
    maps = adjacency_maps(picture)
    assert len(maps) == 3
    assert [t for t in texts(maps[0]) if len(t) == 1][:10] == list("ABCDEABCDE")
    assert "layer 2: full colour = 1" in texts(maps[1])
    assert adjacency_maps(make_picture(graph=False)) == []
    many = [t for t in texts(adjacency_maps(make_picture(20))[0]) if len(t) == 1]
    assert 0 < len(many) <= 24 and many[: len(many) // 4] == many[len(many) // 4 : len(many) // 2]


def test_the_map_is_sorted_by_class(make_picture: Make) -> None:
    """Edges between equal classes become blocks on the diagonal of each quarter, whatever the order of the images."""
    pictures = [make_picture(seed=s) for s in (1, 2)]
    first, second = (re.search(r"base64,([^\"]+)", adjacency_maps(p)[0]) for p in pictures)
    assert first and second and (pictures[0].support_labels != pictures[1].support_labels).any()
    assert first.group(1) == second.group(1)


def test_wrong_shapes_are_told_with_both_numbers(picture: EpisodePicture) -> None:
    with pytest.raises(EngramError, match=r"shape \(4, 5\) but 5 queries and 5 class names need \(5, 5\)"):
        replace(picture, probabilities=picture.probabilities[:4])
    with pytest.raises(EngramError, match=r"5 supports \+ 5 queries need \(layers, 10, 10\)"):
        replace(picture, edges=np.zeros((3, 9, 9)))
    with pytest.raises(EngramError, match="5 support and 5 query images but 4 and 5 labels"):
        replace(picture, support_labels=picture.support_labels[:4])


def test_letters_go_on_after_z() -> None:
    assert [class_letter(n) for n in (-1, 0, 25, 26)] == ["?", "A", "Z", "27"]


def test_a_lean_drawing_keeps_styles_and_turned_labels() -> None:
    figure = new_figure(200, 150)
    axes = figure.subplots()
    axes.plot([0, 1, 2], [0.1, 0.2, 0.3], marker="o", color=SERIES[0])
    style_axes(axes, "across", "upwards")
    text = to_svg(figure, "a line")
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    rules = dict(re.findall(r"\.([\w-]+)\{([^}]*)\}", text))
    assert rules and len(set(rules.values())) == len(rules)  # a style that occurs often is said once

    def style(element: ElementTree.Element) -> str:
        return element.get("style", "") + rules.get(element.get("class", ""), "")

    groups = [g for g in root.iter(f"{space}g") if len(g.findall(f"{space}use")) == 3 and "series-1" in style(g)]
    assert len(groups) == 1 and not any(style(use) for use in groups[0])  # said once, for all three
    assert all(g.attrib for g in root.iter(f"{space}g")), "a group says something about what is in it"
    within = {id(use) for g in root.iter(f"{space}g") if style(g) for use in g}
    alone = [use for use in root.iter(f"{space}use") if id(use) not in within]
    assert alone and all("stroke" in style(use) for use in alone)
    turned = [label.text for label in root.iter(f"{space}text") if "rotate(-90" in label.get("transform", "")]
    assert turned == ["upwards"] and "rotate(-0" not in text
    paths = [path.get("d", "") for path in root.iter(f"{space}path")]
    assert paths and not any(re.search(r"\.\d{2}|\s[A-Za-z]", path) for path in paths)
