"""The best weights of a run in half precision or eight bits, squeezed, without the optimiser: small enough to share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.machine.interruptions import RunLock
from engram.models.build import PREFIX, build_method
from engram.models.checkpoint import Checkpoint, RunState, WhichWeights, check_fit, load, save
from engram.models.run_folder import FORMAT_VERSION, Bits, refuse_run, rounded


def pack(run: Path, out: Path, bits: Bits = 16) -> Path:
    """Write a checkpoint that answers as the run does, to half precision or eight bits, and cannot be resumed."""
    best = load(run)
    return write_packed(best.state, best.tensors("weights"), out, bits)


def write_packed(state: RunState, weights: dict[str, Tensor], out: Path, bits: Bits | None = 16) -> Path:
    """``bits`` None keeps the weights as they are."""
    refuse_run(out)
    if bits:
        weights = rounded(weights, bits)
    state = replace(state, optimiser={}, numpy_generator={}, window={}, chosen="weights", digests={})
    state = replace(state, format_version=FORMAT_VERSION)
    with RunLock(out):
        return save(out, state, {"weights": weights, "optimiser": {}, "random": {}}, squeeze=True)


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
    weights |= {k: v for k, v in bottom.tensors("weights", _seen_by(top, bottom)).items() if k.startswith(PREFIX)}
    shape = bottom.state.image_shape
    state = replace(top.state, recipe=recipe.to_dict(), recipe_digest=recipe.digest, image_shape=shape, features="")
    fitted = build_method(recipe, state.image_shape, torch.device("cpu"), weights=weights).state_dict()
    check_fit(fitted, weights, f"the head of {head} does not fit the encoder of {encoder}")
    if top.state.features and f"run {bottom.state.run_id}, " not in top.state.features:
        raise EngramError(
            f"{head} was trained on {top.state.features} but {encoder} is run {bottom.state.run_id}: attach it to the "
            f"encoder that made its features"
        )
    return write_packed(state, weights, out, 16 if half else None)


def _seen_by(head: Checkpoint, encoder: Checkpoint) -> WhichWeights:
    """Of an encoder with two sets of weights those that made the head's features, else the ones it has."""
    if not head.state.features or "average" not in encoder.state.digests:
        return "chosen"
    return "average" if head.state.features.endswith(" average") else "last"
