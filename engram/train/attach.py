"""A head trained on frozen features, put back on the encoder that made them: one model that sees images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from engram.errors import EngramError
from engram.train.build import build_method
from engram.train.checkpoint import check_fit, load
from engram.train.pack import write_packed
from engram.train.start import PREFIX


def attach(head: Path, encoder: Path, out: Path, half: bool = True) -> Path:
    """Write a checkpoint with the head's weights and the encoder's backbone; half precision by choice."""
    top, bottom = load(head), load(encoder)
    if len(top.state.image_shape) != 1:
        raise EngramError(
            f"{head} was trained on images of {top.state.image_shape}, not on features: it has an encoder"
        )
    data = replace(
        top.recipe.data, normalisation=bottom.recipe.data.normalisation
    )  # pixels as the encoder learned them
    recipe = replace(top.recipe, backbone=bottom.recipe.backbone, backbone_weights="", data=data)
    recipe = replace(recipe, backbone_settings=bottom.recipe.backbone_settings)
    weights = {**top.tensors("weights")}
    weights |= {k: v for k, v in bottom.tensors("weights").items() if k.startswith(PREFIX)}
    shape = bottom.state.image_shape
    state = replace(top.state, recipe=recipe.to_dict(), recipe_digest=recipe.digest, image_shape=shape, features="")
    fitted = build_method(recipe, state.image_shape, torch.device("cpu")).state_dict()
    check_fit(fitted, weights, f"the head of {head} does not fit the encoder of {encoder}")
    if top.state.features and f"run {bottom.state.run_id}, " not in top.state.features:
        raise EngramError(
            f"{head} was trained on {top.state.features} but {encoder} is run {bottom.state.run_id}: attach it to the "
            f"encoder that made its features"
        )
    return write_packed(state, weights, out, 16 if half else None)
