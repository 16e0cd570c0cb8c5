"""The protocols of a recipe: how its training tasks are drawn, and what its model is asked in validation and test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from engram.protocol import KEYS, Protocol, Tasks
from engram.recipes.schema import Recipe

Ask = tuple[tuple[str, Any], ...]
"""changes of a recipe's test protocols, sorted; () = the recipe's own test"""


def training_protocol(recipe: Recipe) -> Protocol:
    """How training tasks are drawn: the recipe's [data] table."""
    drawn = {field.name: getattr(recipe.data, field.name) for field in fields(Tasks)}
    return Protocol(
        recipe.data.dataset,
        "train",
        **drawn,
        n_query=recipe.data.n_query,
        n_sequences=recipe.train.sequences,
        seed=recipe.train.seed,
    )


def training_ranges(recipe: Recipe) -> dict[str, tuple[int, int]]:
    """Keys of the protocol that are drawn anew for every step, each with its least and its greatest value."""
    data = recipe.data
    ends = {"n_query": data.n_query_range, "stream_length": data.stream_length_range, "pool_classes": data.pool_range}
    return {key: (pair[0], pair[1]) for key, pair in ends.items() if pair}


def validation_split(recipe: Recipe) -> str:
    """The split weights are chosen on: never that of the test, but where a recipe reproduces just that."""
    return "test" if recipe.train.select_on_test else "val"


def validation_protocol(recipe: Recipe, batch_norm: str) -> Protocol:
    """The questions asked during training: the recipe's [test] table on the validation split, with its first n_query
    unless [train] has a number of its own, seed 1."""
    first = protocols_of(recipe, validation_split(recipe), batch_norm)[0]
    n_query = recipe.train.validation_queries or first.n_query
    return replace(first, n_query=n_query, n_sequences=recipe.train.validation_sequences, seed=1)


def protocols_of(
    recipe: Recipe | Mapping[str, Any], split: str = "test", batch_norm: str = "running", **changes: Any
) -> tuple[Protocol, ...]:
    """What [test] asks, a protocol for each number of queries, with ``changes`` of its keys where they are not None.

    ``recipe`` may be what a record keeps of one; ``batch_norm`` is that of the model's card.
    """
    settings = recipe.to_dict() if isinstance(recipe, Recipe) else recipe
    test, dataset = settings.get("test") or {}, str((settings.get("data") or {}).get("dataset", ""))
    own = {key: value for key, value in test.items() if key in KEYS}
    own |= {key: value for key, value in changes.items() if value is not None}
    counts = own.pop("n_query", None) or (1,)
    counts = counts if isinstance(counts, list | tuple) else (counts,)
    return tuple(Protocol(dataset, split, **{"batch_norm": batch_norm, **own}, n_query=n) for n in counts)


def expected_protocols(recipe: Recipe, ask: Ask) -> list[dict[str, Any]]:
    """The protocols a model of this recipe is asked, one for each number of queries, as far as the recipe decides."""
    return [protocol.question for protocol in protocols_of(recipe, **dict(ask))]


def ask_of(recipe: Recipe, changes: Mapping[str, Any]) -> Ask:
    """The question of a cell; () where the recipe's own test holds it already."""
    ask = tuple(sorted(changes.items()))
    own = expected_protocols(recipe, ())
    return () if all(protocol in own for protocol in expected_protocols(recipe, ask)) else ask
