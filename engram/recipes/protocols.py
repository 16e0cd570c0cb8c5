"""The protocols of a recipe: how its training tasks are drawn, and what its model is asked in validation and test."""

from __future__ import annotations

from dataclasses import replace

from engram.protocol import Protocol
from engram.recipes.schema import Recipe


def training_protocol(recipe: Recipe) -> Protocol:
    """How training tasks are drawn: the recipe's [data] table."""
    data = recipe.data
    return Protocol(
        data.dataset,
        "train",
        n_way=data.n_way,
        n_shot=data.n_shot,
        n_query=data.n_query,
        labelled_fraction=data.labelled_fraction,
        drop_unlabelled=data.drop_unlabelled,
        slot_order=data.slot_order,
        stream_length=data.stream_length,
        pool_classes=data.pool_classes,
        names=data.names,
        recurrence_gap=data.recurrence_gap,
        drift=data.drift,
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
    n_query = recipe.train.validation_queries or recipe.test.n_query[0]
    asked = asked_protocol(recipe, validation_split(recipe), n_query, batch_norm)
    return replace(asked, n_sequences=recipe.train.validation_sequences, seed=1)


def asked_protocol(recipe: Recipe, split: str, n_query: int, batch_norm: str) -> Protocol:
    """The questions of a recipe's [test] table for one number of queries."""
    test = recipe.test
    return Protocol(
        recipe.data.dataset,
        split,
        n_way=test.n_way,
        n_shot=test.n_shot,
        n_query=n_query,
        labelled_fraction=test.labelled_fraction,
        drop_unlabelled=test.drop_unlabelled,
        hidden_labels_shown=test.hidden_labels_shown,
        slot_order=test.slot_order,
        stream_length=test.stream_length,
        pool_classes=test.pool_classes,
        names=test.names,
        recurrence_gap=test.recurrence_gap,
        drift=test.drift,
        batch_norm=batch_norm,
        n_sequences=test.n_sequences,
    )


def protocols_of(recipe: Recipe, split: str = "test", batch_norm: str = "running") -> tuple[Protocol, ...]:
    """One protocol for each number of queries the recipe tests with; ``batch_norm`` is that of the model's card."""
    return tuple(asked_protocol(recipe, split, n_query, batch_norm) for n_query in recipe.test.n_query)
