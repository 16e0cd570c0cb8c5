"""A recipe as a dataclass: its digest, and tables that are no recipe."""

from __future__ import annotations

import pytest

from engram.errors import EngramError
from engram.recipes.schema import recipe_from_dict

WHOLE = {
    "method": {"name": "proto_net"},
    "data": {"dataset": "glyphs"},
    "train": {"iterations": 10, "sequences": 2},
}


def test_equal_settings_have_equal_digests_whatever_their_name() -> None:
    first = recipe_from_dict(WHOLE, "a", "a.toml")
    assert first.digest == recipe_from_dict({**WHOLE, "description": "other"}, "b", "b.toml").digest
    changed = {**WHOLE, "train": {"iterations": 11, "sequences": 2}}
    assert first.digest != recipe_from_dict(changed, "a", "a.toml").digest


def test_later_keys_enter_a_digest_only_where_they_are_used() -> None:
    """Runs from before these keys keep their digest; each use gives another one, the path as it is written."""
    plain = recipe_from_dict(WHOLE, "a", "a.toml")
    assert plain.digest == "725e4555df531753"
    changes = (
        {"data": {"dataset": "glyphs", "class_batch": 8}},
        {"data": {"dataset": "glyphs", "n_query_range": [1, 4]}},
        {"data": {"dataset": "glyphs", "stream_length_range": [2, 4]}},
        {"data": {"dataset": "glyphs", "pool_range": [5, 9]}},
        {"data": {"dataset": "glyphs", "recurrence_gap": 2}},
        {"data": {"dataset": "glyphs", "drift": 0.1}},
        {"test": {"recurrence_gap": 2}},
        {"test": {"drift": 0.1}},
        {"train": {"iterations": 10, "sequences": 2, "freeze_backbone": True}},
        {"train": {"iterations": 10, "sequences": 2, "betas": [0.5, 0.9]}},
        {"backbone": {"name": "conv4", "weights": "runs/a"}},
        {"backbone": {"name": "conv4", "weights": "./runs/a"}},
        {"train": {"iterations": 10, "sequences": 2, "norm_start": "uniform"}},
        {"data": {"dataset": "glyphs", "drop_unlabelled": True}},
        {"test": {"drop_unlabelled": True}},
        {"train": {"iterations": 10, "sequences": 2, "schedule": "milestones", "milestones": [5]}},
    )
    recipes = [recipe_from_dict({**WHOLE, **change}, "a", "a.toml") for change in changes]
    assert len({plain.digest, *(r.digest for r in recipes)}) == 17
    (weights,) = {r.backbone_weights for r in recipes if r.backbone_weights == "runs/a"}
    assert weights == "runs/a" and not any(r.backbone_settings for r in recipes)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"data": {"dataset": "glyphs", "n_wai": 3}}, r"x.toml \[data\]: unknown key 'n_wai'; did you mean 'n_way'"),
        ({"data": {"dataset": "glyphs", "n_way": "5"}}, r"n_way = '5' does not fit; it takes a whole number"),
        ({"data": {"dataset": "glyphs", "n_way": 5.5}}, r"n_way = 5.5 does not fit; it takes a whole number"),
        ({"data": {"dataset": "glyphs", "n_way": True}}, r"n_way = True does not fit"),
        ({"data": {"dataset": "glyphs", "slot_order": "any"}}, "it takes 'shuffled' or 'class-order'"),
        ({"data": {"dataset": "glyphs", "n_way": 0}}, r"n_way = 0 but at least 1 is needed"),
        ({"data": {"dataset": "glyphs", "labelled_fraction": 0.0}}, "labelled_fraction = 0.0"),
        ({"data": {"dataset": "glyphs", "class_batch": -1}}, r"class_batch = -1 but at least 0 is needed"),
        ({"backbone": {"name": "conv4", "weights": 3}}, r"\[backbone\]: weights = 3 does not fit; it takes a text"),
        ({"train": {"iterations": 10, "sequences": 1, "betas": [0.5]}}, r"betas = \[0.5\] but it takes two numbers"),
        ({"train": {"iterations": 10}}, r"\[train\]: missing .* 'sequences'"),
        ({"train": {"iterations": 10, "sequences": 1, "schedule": "step"}}, "needs schedule_step of at least 1, not 0"),
        (
            {"train": {"iterations": 9, "sequences": 1, "schedule": "milestones"}},
            r"milestones = \[\].* need each other",
        ),
        ({"train": {"iterations": 9, "sequences": 1, "milestones": [3]}}, r"'constant' with milestones = \[3\]"),
        ({"method": "proto_net"}, r"a \[method\] table with a name is needed"),
        ({"trian": {}}, "unknown key 'trian'; did you mean 'train'"),
    ],
)
def test_bad_recipes_get_one_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        recipe_from_dict({**WHOLE, **change}, "x", "x.toml")
