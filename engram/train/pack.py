"""The best weights of a run in half precision and without the optimiser: small enough to share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from engram.train.checkpoint import RunState, load, save
from engram.train.lock import RunLock


def pack(run: Path, out: Path) -> Path:
    """Write a checkpoint that answers as the run does, to half precision, and cannot be resumed."""
    best = load(run)
    return write_packed(best.state, best.tensors("weights"), out)


def write_packed(state: RunState, weights: dict[str, Tensor], out: Path, half: bool = True) -> Path:
    if half:
        weights = {name: value.half() if value.is_floating_point() else value for name, value in weights.items()}
    state = replace(state, optimiser={}, numpy_generator={}, window={}, digests={})
    with RunLock(out):
        return save(out, state, {"weights": weights, "optimiser": {}, "random": {}})
