"""An episode in pictures: all images, the true class, and a map for each layer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from svg_words import texts

from engram.errors import EngramError
from engram.report.episode import (
    EpisodePicture,
    adjacency_maps,
    class_letter,
    episode_matrix,
    shown_queries,
)

Make = Callable[..., EpisodePicture]


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
