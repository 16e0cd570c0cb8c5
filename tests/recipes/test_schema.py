"""A recipe as a dataclass: its digest, and tables that are no recipe."""

from __future__ import annotations

import pytest
from minimal import RECIPE

from engram.errors import EngramError
from engram.recipes.schema import digest_of, recipe_from_dict, recipe_from_saved


def test_equal_settings_have_equal_digests_whatever_their_name() -> None:
    first = recipe_from_dict(RECIPE, "a", "a.toml")
    assert first.digest == recipe_from_dict({**RECIPE, "description": "other"}, "b", "b.toml").digest
    changed = {**RECIPE, "train": {"iterations": 11, "sequences": 2}}
    assert first.digest != recipe_from_dict(changed, "a", "a.toml").digest


def test_later_keys_enter_a_digest_only_where_they_are_used() -> None:
    """Runs from before these keys keep their digest; each use gives another one, the path as it is written."""
    plain = recipe_from_dict(RECIPE, "a", "a.toml")
    assert plain.digest == "725e4555df531753"
    changes = (
        {"data": {"dataset": "glyphs", "class_batch": 8}},
        {"data": {"dataset": "glyphs", "n_query_range": [1, 4]}},
        {"data": {"dataset": "glyphs", "stream_length_range": [2, 4]}},
        {"data": {"dataset": "glyphs", "pool_range": [5, 9]}},
        {"data": {"dataset": "glyphs", "recurrence_gap": 2}},
        {"data": {"dataset": "glyphs", "augmentation": "standard"}},
        {"data": {"dataset": "glyphs", "augmentation": "standard", "crop_area": [0.2, 1]}},
        {"data": {"dataset": "glyphs", "augmentation": "standard", "crop_aspect": [0.75, 1.5]}},
        {"data": {"dataset": "glyphs", "drift": 0.1}},
        {"data": {"dataset": "glyphs", "train_classes": [0, 9]}},
        {"test": {"recurrence_gap": 2}},
        {"test": {"drift": 0.1}},
        {"train": {"iterations": 10, "sequences": 2, "freeze_backbone": True}},
        {"train": {"iterations": 10, "sequences": 2, "betas": [0.5, 0.9]}},
        {"backbone": {"name": "conv4", "weights": "runs/a"}},
        {"backbone": {"name": "conv4", "weights": "./runs/a"}},
        {"train": {"iterations": 10, "sequences": 2, "norm_start": "uniform"}},
        {"train": {"iterations": 10, "sequences": 2, "average": 0.999}},
        {"train": {"iterations": 10, "sequences": 2, "teacher": "runs/a"}},
        {"data": {"dataset": "glyphs", "drop_unlabelled": True}},
        {"test": {"drop_unlabelled": True}},
        {"train": {"iterations": 10, "sequences": 2, "schedule": "milestones", "milestones": [5]}},
    )
    recipes = [recipe_from_dict({**RECIPE, **change}, "a", "a.toml") for change in changes]
    assert len({plain.digest, *(r.digest for r in recipes)}) == 23
    (weights,) = {r.backbone_weights for r in recipes if r.backbone_weights == "runs/a"}
    assert weights == "runs/a" and not any(r.backbone_settings for r in recipes)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"method": "proto_net"}, r"a \[method\] table with a name is needed"),
        ({"trian": {}}, "unknown key 'trian'; did you mean 'train'"),
        (
            {"paper": {"accuracy": 50.0}},
            r"x.toml: a published figure stands in a study.* paper = ACCURACY .*studies",
        ),
    ],
)
def test_bad_recipes_get_one_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        recipe_from_dict({**RECIPE, **change}, "x", "x.toml")


def test_a_saved_recipe_that_states_a_published_figure_is_read_and_keeps_its_digest() -> None:
    recipe = recipe_from_dict(RECIPE, "a", "a.toml")
    saved = {**recipe.to_dict(), "paper": {"table": "Table 1", "row": "EGNN", "accuracy": 58.65}}
    assert recipe_from_saved(saved, "a record") == recipe and digest_of(saved) == recipe.digest
