"""Numbers of a recipe that cannot work are told before anything is built."""

from __future__ import annotations

from dataclasses import replace

import pytest
from minimal import RECIPE

from engram.errors import EngramError
from engram.recipes.checks import check_recipe
from engram.recipes.schema import recipe_from_dict

CROPPED = {"dataset": "glyphs", "augmentation": "standard"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"data": {"dataset": "glyphs", "n_way": 1}}, r"n_way = 1 but at least 2 is needed"),
        ({"data": {"dataset": "glyphs", "labelled_fraction": 0.0}}, "labelled_fraction = 0.0"),
        ({"data": {"dataset": "glyphs", "class_batch": -1}}, r"class_batch = -1 but at least 0 is needed"),
        ({"data": {**CROPPED, "crop_area": [0.2]}}, r"crop_area = \[0.2\] but it takes the least and the greatest"),
        ({"data": {**CROPPED, "crop_area": [1.0, 0.2]}}, r"crop_area = \[1.0, 0.2\] but it takes the least"),
        ({"data": {**CROPPED, "crop_area": [0.0, 1.0]}}, "number, above 0 and up to 1"),
        ({"data": {**CROPPED, "crop_area": [0.2, 1.5]}}, r"crop_area = \[0.2, 1.5\] .* above 0 and up to 1"),
        ({"data": {**CROPPED, "crop_aspect": [-1.0, 2.0]}}, r"crop_aspect = \[-1.0, 2.0\] .* number, above 0"),
        (
            {"data": {"dataset": "glyphs", "augmentation": "affine", "crop_area": [0.2, 1.0]}},
            r"crop_area = \[0.2, 1.0\] but augmentation 'affine' draws no such window: set it to 'standard'",
        ),
        ({"train": {"iterations": 10, "sequences": 1, "betas": [0.5]}}, r"betas = \[0.5\] but it takes two numbers"),
        (
            {"train": {"iterations": 9, "sequences": 1, "start_head": True}},
            r"\[backbone\] weights = '' is none",
        ),
        ({"train": {"iterations": 9, "sequences": 1, "average": 1.0}}, "average = 1.0 but it lies from 0"),
        ({"train": {"iterations": 9, "sequences": 1, "average": -0.1}}, "average = -0.1 but it lies from 0"),
        ({"train": {"iterations": 9, "sequences": 1, "average": float("nan")}}, "average = nan but it lies from 0"),
        ({"train": {"iterations": 10, "sequences": 1, "schedule": "step"}}, "needs schedule_step of at least 1, not 0"),
        (
            {"train": {"iterations": 9, "sequences": 1, "schedule": "milestones"}},
            r"milestones = \[\].* need each other",
        ),
        ({"train": {"iterations": 9, "sequences": 1, "milestones": [3]}}, r"'constant' with milestones = \[3\]"),
    ],
)
def test_bad_recipes_get_one_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        recipe_from_dict({**RECIPE, **change}, "x", "x.toml")


def test_numbers_are_checked_after_an_override_too() -> None:
    recipe = recipe_from_dict(RECIPE, "x", "x.toml")
    check_recipe(recipe, "x.toml")
    for change, told in (
        ({"seed": 2**63}, "seed = 9223372036854775808 but it must lie below 2"),
        ({"learning_rate": float("nan")}, "learning_rate = nan but at least 0 is needed"),
        ({"nesterov": True}, "nesterov needs optimiser = 'sgd' with momentum above 0 but they are 'adam'"),
        ({"milestone_factors": (0.1,)}, "1 milestone_factors for 0 milestones"),
    ):
        with pytest.raises(EngramError, match=rf"x.toml \[train\]: {told}"):
            check_recipe(replace(recipe, train=replace(recipe.train, **change)), "x.toml")
