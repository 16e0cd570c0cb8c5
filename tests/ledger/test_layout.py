"""A record on disk: short lines to read, and nothing lost."""

import json
from math import inf, nan

from engram.ledger.layout import finite, readable, rounded


def test_json_has_no_infinity() -> None:
    assert finite({"nll": nan, "curve": (1.0, -inf), "deep": [{"x": inf}]}) == {
        "nll": None,
        "curve": [1.0, None],
        "deep": [{"x": None}],
    }


def test_eight_digits_are_kept_of_a_float_and_all_of_a_whole_number() -> None:
    assert rounded({"a": [1 / 3, 123456789012], "b": "1.23456789012", "c": True}) == {
        "a": [0.33333333, 123456789012],
        "b": "1.23456789012",
        "c": True,
    }


def test_lists_and_inner_tables_of_plain_values_stand_on_one_line_and_nothing_is_lost() -> None:
    content = {
        "settings": {"rate": 0.1, "betas": [], "name": None},
        "curve": [0.25, -1e-07, 3, None, True],
        "names": ["a, b", "[c]", 'with "quotes"', "back\\slash"],
        "nested": [{"x": [1]}, [[1, 2], [3]], []],
        "runs": [{"metrics": {"accuracy": 0.5, "bins": [[1], [2]]}}],
    }
    text = readable(content)
    assert json.loads(text) == content
    assert '"curve": [0.25,-1e-07,3,null,true]' in text and '"x": [1]' in text
    assert '\n   "metrics": {"accuracy":0.5,"bins":[[1],[2]]}\n' in text
    assert '\n "settings": {"betas":[],"name":null,"rate":0.1}' in text
    assert readable({"b": 1, "a": 2}) == '{\n "a": 2,\n "b": 1\n}\n'
