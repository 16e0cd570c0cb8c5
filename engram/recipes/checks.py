"""Numbers of a recipe that cannot work, found before anything is built."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from engram.errors import EngramError
from engram.protocol import below_least

if TYPE_CHECKING:
    from engram.recipes.schema import DataSettings, Recipe

SEEDS = 2**63
"""torch and numpy both take seeds from 0 to below it"""


def check_recipe(recipe: Recipe, where: str) -> None:
    """One sentence with ``where``, the key, its value and the least it can be; also after an override."""
    data, train, test = recipe.data, recipe.train, recipe.test
    for name, tasks in (("data", data), ("test", test)):
        if too_small := below_least(tasks):
            raise EngramError(f"{where} [{name}]: {too_small}")
    for table, settings, least, keys in (
        ("data", data, 0, ("class_batch", "crop")),
        ("data", data, 1, ("image_size",)),
        ("train", train, 1, ("iterations", "sequences", "validate_every", "validation_sequences")),
        ("train", train, 0, ("seed", "learning_rate", "weight_decay", "momentum", "schedule_factor", "clip_value")),
    ):
        for key in keys:
            value = getattr(settings, key)
            if not value >= least:  # so that nan is refused too
                raise EngramError(f"{where} [{table}]: {key} = {value} but at least {least} is needed")
    for key, ends, least in (
        ("n_query_range", data.n_query_range, 1),
        ("stream_length_range", data.stream_length_range, 1),
        ("pool_range", data.pool_range, data.n_way),
    ):
        if ends and not (len(ends) == 2 and least <= ends[0] <= ends[1]):
            raise EngramError(
                f"{where} [data]: {key} = {list(ends)} but it takes the least and the greatest number, {least} at least"
            )
    _check_crop(data, where)
    if train.seed >= SEEDS:
        raise EngramError(f"{where} [train]: seed = {train.seed} but it must lie below 2 ** 63")
    if not test.n_query or min(test.n_query) < 1:
        raise EngramError(f"{where} [test]: n_query = {list(test.n_query)} but it needs entries of at least 1")
    if train.schedule == "step" and train.schedule_step < 1:
        raise EngramError(
            f"{where} [train]: schedule 'step' needs schedule_step of at least 1, not {train.schedule_step}"
        )
    if train.milestone_factors and len(train.milestone_factors) != len(train.milestones):
        raise EngramError(
            f"{where} [train]: {len(train.milestone_factors)} milestone_factors for {len(train.milestones)} "
            f"milestones; give one for each, or none"
        )
    if train.nesterov and not (train.optimiser == "sgd" and train.momentum > 0):
        raise EngramError(
            f"{where} [train]: nesterov needs optimiser = 'sgd' with momentum above 0 but they are '{train.optimiser}' "
            f"and {train.momentum}"
        )
    if (train.schedule == "milestones") != bool(train.milestones) or min(train.milestones, default=1) < 1:
        raise EngramError(
            f"{where} [train]: schedule '{train.schedule}' with milestones = {list(train.milestones)}; schedule "
            f"'milestones' and a list of iterations of at least 1 need each other"
        )
    if train.betas and not (len(train.betas) == 2 and all(0 <= beta < 1 for beta in train.betas)):
        raise EngramError(f"{where} [train]: betas = {list(train.betas)} but it takes two numbers from 0 to below 1")
    if not data.crop <= 1:
        raise EngramError(f"{where} [data]: crop = {data.crop} but it is a share of the picture, up to 1")
    if not 0 <= train.head_first < 1:
        raise EngramError(f"{where} [train]: head_first = {train.head_first} but it lies from 0 (none) to below 1")
    if train.start_head and recipe.backbone_weights in ("", "imagenet"):
        raise EngramError(
            f"{where} [train]: start_head takes over the head of an earlier run but [backbone] weights = "
            f"'{recipe.backbone_weights}' is none: name its folder there, or leave start_head out"
        )
    if not 0 <= train.average < 1:
        raise EngramError(f"{where} [train]: average = {train.average} but it lies from 0 (none) to below 1")
    for table, fraction in (("data", data.labelled_fraction), ("test", test.labelled_fraction)):
        if not 0 < fraction <= 1:
            raise EngramError(f"{where} [{table}]: labelled_fraction = {fraction} but it lies above 0 and up to 1")


def _check_crop(data: DataSettings, where: str) -> None:
    """Windows lie inside the image and are drawn by one augmentation alone."""
    for key, most, bounds in (("crop_area", 1.0, "above 0 and up to 1"), ("crop_aspect", inf, "above 0")):
        ends = getattr(data, key)
        if not (len(ends) == 2 and 0 < ends[0] <= ends[1] <= most and ends[1] < inf):
            raise EngramError(
                f"{where} [data]: {key} = {list(ends)} but it takes the least and the greatest number, {bounds}"
            )
        if data.augmentation != "standard" and ends != getattr(type(data), key):
            raise EngramError(
                f"{where} [data]: {key} = {list(ends)} but augmentation '{data.augmentation}' draws no such window: "
                f"set it to 'standard' or leave {key} out"
            )
