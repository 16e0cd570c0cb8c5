"""What a recipe draws in training, and what its model is asked in validation and test."""

from __future__ import annotations

from dataclasses import replace

from toy_run import RECIPE

from engram.protocol import Protocol
from engram.recipes import load_recipe
from engram.recipes.protocols import (
    ask_of,
    expected_protocols,
    protocols_of,
    training_protocol,
    validation_protocol,
)
from engram.recipes.schema import DataSettings, Recipe, TestSettings, TrainSettings


def recipe(**test: object) -> Recipe:
    asked = TestSettings(**test)  # type: ignore[arg-type]
    return Recipe("toy", "chance", DataSettings("toy", n_way=3, drift=0.1), TrainSettings(1, 2), asked)


def test_protocols_of_a_recipe_and_of_what_a_record_keeps_of_it() -> None:
    chosen = recipe(n_query=(1, 15), stream_length=4, drift=0.2, query_balance="dirichlet")
    asked = protocols_of(chosen, "val", "task")
    assert [p.n_query for p in asked] == [1, 15]
    assert all((p.split, p.batch_norm, p.drift, p.query_balance) == ("val", "task", 0.2, "dirichlet") for p in asked)
    assert protocols_of(chosen.to_dict()) == protocols_of(chosen)
    assert protocols_of({}) == (Protocol(""),)
    trained = training_protocol(chosen)
    assert (trained.n_way, trained.drift, trained.split, trained.n_sequences) == (3, 0.1, "train", 2)


def test_a_question_is_a_change_of_the_recipes_own() -> None:
    chosen = recipe(n_query=(1, 15))
    assert ask_of(chosen, {"n_query": 15}) == () and ask_of(chosen, {"n_query": 5}) == (("n_query", 5),)
    (asked,) = expected_protocols(chosen, (("n_query", 5),))
    assert asked["n_query"] == 5 and asked["n_sequences"] == 1000
    assert "batch_norm" not in asked and "seed" not in asked


def test_recurrence_and_drift_of_a_recipe_reach_its_streams() -> None:
    data, test = (replace(part, recurrence_gap=1, drift=0.25) for part in (RECIPE.data, RECIPE.test))
    recipe = replace(RECIPE, data=data, test=test)
    for protocol in (training_protocol(recipe), validation_protocol(recipe, "none"), *protocols_of(recipe)):
        assert (protocol.recurrence_gap, protocol.drift) == (1, 0.25)


def test_validation_asks_as_many_queries_as_training_says() -> None:
    recipe = replace(RECIPE, test=replace(RECIPE.test, n_query=(1, 4)))
    assert validation_protocol(recipe, "running").n_query == 1
    more = replace(recipe, train=replace(recipe.train, validation_queries=4))
    assert validation_protocol(more, "running").n_query == 4
    assert [p.n_query for p in protocols_of(more)] == [1, 4]
    assert replace(more, train=replace(more.train, validation_queries=0)).digest == recipe.digest != more.digest


def test_a_question_the_recipe_asks_anyway_is_not_asked_twice() -> None:
    recipe = load_recipe("cml_bgnn/mini_5w1s_public_quick")  # tests with 1 and with 15 queries
    assert [p["n_query"] for p in expected_protocols(recipe, ())] == [1, 15]
    assert ask_of(recipe, {"n_query": 1, "stream_length": 8}) == ()
    assert ask_of(recipe, {"slot_order": "shuffled"}) == ()
    assert ask_of(recipe, {"slot_order": "class-order"}) == (("slot_order", "class-order"),)
