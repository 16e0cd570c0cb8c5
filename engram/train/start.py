"""Starting a backbone from the weights of an earlier run, most often stage one."""

from __future__ import annotations

from pathlib import Path

from engram.errors import EngramError
from engram.recipes.schema import Recipe, maker_of
from engram.train import checkpoint as checkpoints
from engram.train.places import located
from engram.types import Method

PREFIX = "backbone.backbone."
"""method.backbone is the encoder, and its backbone is what has weights"""


def start_backbone(method: Method, recipe: Recipe) -> None:
    """Copy the backbone of the checkpoint ``recipe.backbone_weights``, of whichever method, into ``method``.

    Every name and shape must agree, and so must the normalisation, as weights made for other pixels would fit in shape
    and see nothing, and the start of norms, as the recipe would claim one that its backbone never had.
    """
    where = located(Path(recipe.backbone_weights))
    if not where.exists() and (maker := maker_of(recipe.backbone_weights)):
        raise EngramError(
            f"{recipe.name} [backbone] starts from {where}, which is not there: make it with engram train {maker}, or "
            f"train on its features with --features"
        )
    found = checkpoints.load(where)
    before, now = found.recipe.data.normalisation, recipe.data.normalisation
    if before != now:
        raise EngramError(
            f"the backbone in {found.folder} was trained with normalisation '{before}' but {recipe.name} [data] has "
            f"'{now}': use '{before}'"
        )
    started, asked = found.recipe.train.norm_start, recipe.train.norm_start
    if started != asked:
        raise EngramError(
            f"the backbone in {found.folder} was trained with norm_start '{started}' but {recipe.name} [train] has "
            f"'{asked}': use '{started}'"
        )
    saved, own = (
        {name: value for name, value in tensors.items() if name.startswith(PREFIX)}
        for tensors in (found.tensors("weights"), method.state_dict())
    )
    checkpoints.check_fit(own, saved, f"the backbone in {found.folder} does not fit '{recipe.backbone}'")
    method.load_state_dict(saved, strict=False)
