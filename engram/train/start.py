"""What a run starts from: the backbone of an earlier run, most often stage one, or its own last step."""

from __future__ import annotations

from pathlib import Path

from engram.errors import EngramError
from engram.recipes.schema import Recipe, maker_of
from engram.train import checkpoint as checkpoints
from engram.train.build import revisions
from engram.train.places import located
from engram.types import Method

PREFIX = "backbone.backbone."
"""method.backbone is the encoder, and its backbone is what has weights"""


def start_backbone(method: Method, recipe: Recipe) -> str:
    """Copy the backbone of the checkpoint ``recipe.backbone_weights``, of whichever method, into ``method``.

    -> digest of the checkpoint's weights, for the record.

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
    if not found.state.digests.get("weights"):
        raise EngramError(
            f"{found.folder}/state.json has no digest of its weights, so no record could say what {recipe.name} "
            f"started from: write it again with engram pack"
        )
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
    return found.state.digests["weights"][:16]


def check_same_run(saved: checkpoints.Checkpoint, recipe: Recipe, train_digest: str, validation_digest: str) -> None:
    """A run goes on with the method, the recipe and the data it was started with, or not at all."""
    state, known = saved.state, revisions(recipe)
    if state.revision != len(known):
        changed = "; ".join(r.what for r in known[state.revision :])
        raise EngramError(
            f"{saved.folder} cannot be resumed: it was trained with revision {state.revision} of {recipe.method} but "
            f"this Engram has {len(known)}{f' ({changed})' if changed else ''}; start a new run in another folder"
        )
    for what, old, new in (
        ("recipe", state.recipe_digest, recipe.digest),
        ("training data", state.dataset_digest, train_digest),
        ("validation data", state.validation["dataset_digest"], validation_digest),
    ):
        if old != new:
            raise EngramError(
                f"{saved.folder} cannot be resumed: its {what} has the digest {old[:16]} but yours {new[:16]}; "
                f"use what it was started with, or start a new run in another folder"
            )
