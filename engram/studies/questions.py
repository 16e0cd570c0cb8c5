"""What a model is asked: a recipe's own test protocols, or those with some keys changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engram.recipes import Recipe

Ask = tuple[tuple[str, Any], ...]
"""changes of a recipe's test protocol, sorted; () = the recipe's own test"""
DEFAULTS = {
    "query_balance": "balanced", "pool_classes": 0, "names": "anonymous", "labelled_fraction": 1.0, "recurrence_gap": 0,
    "drift": 0.0, "revisit": 0, "erase_history": False, "test_samples": 0, "slot_order": "shuffled", "stream_length": 1,
}  # fmt: skip
"""what a protocol says where it says nothing"""


def expected_protocols(recipe: Recipe, ask: Ask) -> list[dict[str, Any]]:
    """The protocols a model of this recipe is asked, one for each number of queries, as far as the recipe decides."""
    own, given = {"dataset": recipe.data.dataset, "split": "test", **asdict(recipe.test)}, dict(ask)
    counts = (given["n_query"],) if "n_query" in given else recipe.test.n_query
    return [{**DEFAULTS, **own, **given, "n_query": n} for n in counts]


def answers_to(protocol: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether a record's protocol is the one expected; a key that came after the record counts as not used."""
    absent = {key: value if not value else None for key, value in expected.items()} | DEFAULTS
    return all(protocol.get(key, absent[key]) == value for key, value in expected.items())


def ask_of(recipe: Recipe, changes: Mapping[str, Any]) -> Ask:
    """The question of a cell; () where the recipe's own test holds it already."""
    ask = tuple(sorted(changes.items()))
    own = expected_protocols(recipe, ())
    return () if all(protocol in own for protocol in expected_protocols(recipe, ask)) else ask
