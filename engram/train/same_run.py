"""Whether a stopped run may go on."""

from __future__ import annotations

from engram.errors import EngramError
from engram.recipes.schema import Recipe
from engram.train.build import revisions
from engram.train.checkpoint import Checkpoint


def check_same_run(saved: Checkpoint, recipe: Recipe, train_digest: str, validation_digest: str) -> None:
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
