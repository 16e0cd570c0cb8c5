"""A key of the protocol is declared once; recipes, flags, studies, records and tables have it from there."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path

import pytest

import engram
from engram.errors import EngramError
from engram.flags import Asked
from engram.protocol import ASKED, CHOICES, DEFAULTS, KEYS, LATER, NOT_DRAWN, Protocol, Tasks, agrees, describe_protocol
from engram.recipes.schema import LATER as LATER_IN_RECIPES
from engram.recipes.schema import DataSettings, Recipe, TestSettings, TrainSettings, recipe_from_dict
from engram.studies.schema import study_from_dict


def recipe(**test: object) -> Recipe:
    asked = TestSettings(**test)  # type: ignore[arg-type]
    return Recipe("toy", "chance", DataSettings("toy", n_way=3, drift=0.1), TrainSettings(1, 2), asked)


def test_every_key_is_described_and_has_a_default() -> None:
    assert list(KEYS) == [field.name for field in fields(Protocol)]
    assert DEFAULTS.keys() == KEYS.keys() - {"dataset"}
    assert all(len(key.says) > 5 for key in KEYS.values())
    assert CHOICES["slot_order"] == ("shuffled", "class-order") and CHOICES["erase_history"] == (True, False)


def test_recipes_flags_and_digests_take_their_keys_from_here() -> None:
    keys = {field.name for field in fields(Tasks)}
    for table in (DataSettings, TestSettings):
        of_table = {field.name: field.default for field in fields(table)}
        assert {key: of_table[key] for key in keys} == {key: DEFAULTS[key] for key in keys}
    assert LATER <= LATER_IN_RECIPES
    assert tuple(field.name for field in fields(Asked.__origin__)) == ASKED


def test_a_key_is_named_where_it_is_declared_and_where_such_tasks_are_drawn() -> None:
    package = Path(engram.__file__).parent
    naming = {p.relative_to(package).parts[0] for p in package.rglob("*.py") if "recurrence_gap" in p.read_text()}
    assert naming == {"protocol", "data", "options.py"}  # the last for type checkers: what a call takes by keyword


def test_how_one_asks_is_kept_apart_from_what_is_drawn() -> None:
    assert set(NOT_DRAWN) == {"slot_order", "erase_history", "test_samples", "views", "window", "batch_norm"}


@pytest.mark.parametrize("key", sorted(KEYS.keys() - {"dataset", "split", "dataset_digest", "seed", "n_sequences"}))
def test_no_two_protocols_have_the_same_words(key: str) -> None:
    stream = Protocol("toy", stream_length=8, query_balance="dirichlet").to_dict()
    other = next((c for c in CHOICES.get(key, ()) if c != stream.get(key, DEFAULTS[key])), 0.5)
    other = other if key in CHOICES or isinstance(DEFAULTS[key], float) else 7
    assert describe_protocol(stream | {key: other}) != describe_protocol(stream)


def test_words_of_a_protocol() -> None:
    assert describe_protocol({}) == "?-way ?-shot, 1 query per class, shuffled"
    asked = Protocol("toy", n_query=15, stream_length=8, names="named", pool_classes=20, recurrence_gap=3, revisit=2)
    assert describe_protocol(asked.to_dict()) == (
        "5-way 1-shot, 15 queries per class, shuffled, T = 8, named, pool of 20 classes, "
        "each class back after 3 tasks, the first 2 asked again"
    )
    assert describe_protocol(Protocol("toy", names="named", erase_history=True).to_dict()).endswith("class, shuffled")
    assert describe_protocol(Protocol("toy", views=2).to_dict()).endswith("shuffled, picture and mirror averaged")
    leaky = Protocol("toy", slot_order="class-order", labelled_fraction=0.2, drop_unlabelled=True, test_samples=1)
    words = describe_protocol(leaky.to_dict(), markdown=True)
    assert "20 % labelled, the rest left out, **class order: " in words and words.endswith("paper**, 1 sample")


def test_a_key_that_a_record_lacks_is_at_its_default() -> None:
    assert agrees({"n_way": 5}, {"n_way": 5, "drift": 0.0, "names": "anonymous"})
    assert not agrees({"n_way": 5}, {"drift": 0.1}) and not agrees({"drift": 0.1}, {"drift": 0.0})
    assert not agrees({}, {"dataset": "toy"})


def test_bad_values_are_told_with_table_and_key() -> None:
    toml = {"method": {"name": "chance"}, "data": {"dataset": "toy"}, "train": {"iterations": 1, "sequences": 1}}
    with pytest.raises(EngramError, match=r"toy.toml \[test\]: recurrence_gap = -1 but at least 0 is needed"):
        recipe_from_dict({**toml, "test": {"recurrence_gap": -1}}, "toy", "toy.toml")
    with pytest.raises(EngramError, match=r"toy.toml \[test\]: unknown key 'drifts'; did you mean 'drift'"):
        recipe_from_dict({**toml, "test": {"drifts": 0.1}}, "toy", "toy.toml")
    with pytest.raises(EngramError, match="names = 'local' does not fit; it takes 'anonymous' or 'named'"):
        recipe_from_dict({**toml, "test": {"names": "local"}}, "toy", "toy.toml")
    cells = [{"column": "a", "recipe": "x", "ask": {"names": "local"}}]
    with pytest.raises(EngramError, match="ask has names = 'local'; it takes 'anonymous' or 'named'"):
        study_from_dict({"title": "t", "columns": ["a"], "row": [{"label": "r", "cells": cells}]}, "s", "s.toml")


def test_a_digest_does_not_tell_of_keys_that_came_later() -> None:
    assert recipe().digest == recipe(query_balance="balanced", drift=0.0, hidden_labels_shown=False).digest
    assert recipe().digest != recipe(query_balance="dirichlet").digest
    assert asdict(recipe())["test"]["query_balance"] == "balanced"
