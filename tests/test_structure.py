"""Tables of TOML become dataclasses, and what does not fit is told in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from minimal import RECIPE

from engram.errors import EngramError
from engram.recipes.schema import recipe_from_dict
from engram.structure import check_types, structure


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"data": {"dataset": "glyphs", "n_wai": 3}}, r"x.toml \[data\]: unknown key 'n_wai'; did you mean 'n_way'"),
        ({"data": {"dataset": "glyphs", "n_way": "5"}}, r"n_way = '5' does not fit; it takes a whole number"),
        ({"data": {"dataset": "glyphs", "n_way": 5.5}}, r"n_way = 5.5 does not fit; it takes a whole number"),
        ({"data": {"dataset": "glyphs", "n_way": True}}, r"n_way = True does not fit"),
        ({"data": {"dataset": "glyphs", "slot_order": "any"}}, "it takes 'shuffled' or 'class-order'"),
        ({"backbone": {"name": "conv4", "weights": 3}}, r"\[backbone\]: weights = 3 does not fit; it takes a text"),
        ({"train": {"iterations": 10}}, r"\[train\]: missing .* 'sequences'"),
    ],
)
def test_bad_recipes_get_one_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        recipe_from_dict({**RECIPE, **change}, "x", "x.toml")


@dataclass(frozen=True)
class Table:
    rate: float
    sizes: tuple[int, ...] = ()
    order: Literal["up", "down"] = "up"
    name: str | None = None


def test_a_table_becomes_its_dataclass() -> None:
    assert structure({"rate": 1, "sizes": [2, 3]}, Table, "x") == Table(1.0, (2, 3))
    assert isinstance(structure({"rate": 1}, Table, "x").rate, float)


def test_what_a_key_takes_is_told_in_words() -> None:
    for table, told in (
        ({"rate": 1, "sizes": "23"}, "sizes = '23' does not fit; it takes a list of a whole number"),
        ({"rate": 1, "order": "left"}, "order = 'left' does not fit; it takes 'up' or 'down'"),
        ({"rate": False}, "rate = False does not fit; it takes a number"),
        ({"rate": 1, "ordr": "up"}, "unknown key 'ordr'; did you mean 'order'"),
        ({}, "missing 1 required positional argument: 'rate'"),
    ):
        with pytest.raises(EngramError, match=f"^x: {told}"):
            structure(table, Table, "x")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ([1], r"f.json: \[1\] does not fit; it takes a table"),
        ({"rate": 1.0, "sizes": [2**70]}, "sizes = .* does not fit; it takes a list of a whole number"),
        ({"rate": 1.0, "sizes": {"a": 1}}, "sizes = {'a': 1} does not fit"),
        ({"rate": "x" * 9999}, "rate = 'x{199}... does not fit"),
    ],
)
def test_what_json_can_hold_is_told_briefly(table: dict[str, object], says: str) -> None:
    with pytest.raises(EngramError, match=says):
        structure(table, Table, "f.json")


def test_types_alone_are_checked_of_part_of_a_table() -> None:
    check_types({"sizes": [1], "other": "key"}, Table, "f.json")
    with pytest.raises(EngramError, match="f.json: order = 'sideways' does not fit; it takes 'up' or 'down'"):
        check_types({"order": "sideways"}, Table, "f.json")
