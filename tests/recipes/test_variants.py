"""Variants state what they change; bases that do not exist, circles and long chains are named."""

from typing import Any

import pytest

from engram.errors import EngramError
from engram.recipes.variants import Layer, chain_of, merge

FILE: dict[str, Any] = {
    "base": {"method": {"name": "egnn", "width": 96}, "backbone": {"name": "conv4", "dropout": [0.1]}},
    "variant": {
        "a": {"description": "first", "method": {"width": 32}, "test": {"n_way": 5}},
        "b": {"from": "a", "train": {"iterations": 5}, "without": ["backbone.dropout", "test"]},
    },
}


def test_tables_merge_key_by_key_and_each_value_has_its_origin() -> None:
    merged = merge(chain_of(FILE, "b", "egnn.toml"), "egnn.toml")
    assert merged.raw == {
        "method": {"name": "egnn", "width": 32},
        "backbone": {"name": "conv4"},
        "train": {"iterations": 5},
    }
    assert merged.origins == {
        "method.name": "base",
        "method.width": "a",
        "backbone.name": "base",
        "train.iterations": "b",
    }
    assert FILE["base"]["backbone"] == {"name": "conv4", "dropout": [0.1]}  # what others start from stays as it is


def test_a_description_stands_for_its_own_variant_alone() -> None:
    assert merge(chain_of(FILE, "a", ""), "").raw["description"] == "first"
    assert "description" not in merge(chain_of(FILE, "b", ""), "").raw


@pytest.mark.parametrize(
    ("variants", "sentence"),
    [
        ({"x": {"from": "aa"}}, r"egnn.toml \[variant.x\]: from = 'aa' is no variant of this file; .*base"),
        ({"x": {"from": 3}}, r"\[variant.x\]: from = 3 is no variant"),
        (
            {"x": {"from": "y"}, "y": {"from": "x"}},
            "go in a circle, x from y from x; let one of them start from 'base'",
        ),
        ({"x": {"from": "x"}}, "go in a circle, x from x"),
        ({"x": {"without": ["train.milestones"]}}, r"\[x\]: without names 'train.milestones' but there is none"),
        ({"x": {"without": "test"}}, "without = 'test' does not fit; it takes a list of keys"),
        ({"x": 5}, "x = 5 does not fit; it takes a table"),
        (
            {"x": {"from": "x1"}, **{f"x{n}": {"from": f"x{n + 1}"} for n in range(1, 4)}, "x4": {}},
            r"\[variant.x\]: 5 variants stand on the base, x from x1 from .* at most 4 may",
        ),
    ],
)
def test_bad_variants_get_one_sentence(variants: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        merge(chain_of({"base": {}, "variant": variants}, "x", "egnn.toml"), "egnn.toml")


def test_other_tables_in_a_methods_file_are_named() -> None:
    with pytest.raises(EngramError, match="egnn.toml: unknown key 'varaint'; a method's file has"):
        chain_of({"base": {}, "varaint": {}}, "base", "egnn.toml")


def test_later_layers_replace_lists_whole() -> None:
    layers = [Layer("base", {"test": {"n_query": [1, 15]}}), Layer("a", {"test": {"n_query": [15]}})]
    assert merge(layers, "").raw == {"test": {"n_query": [15]}}
