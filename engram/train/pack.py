"""The best weights of a run in half precision or eight bits and without the optimiser: small enough to share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from engram.train.checkpoint import RunState, load, save
from engram.train.lock import RunLock
from engram.train.rounding import Bits, rounded


def pack(run: Path, out: Path, bits: Bits = 16) -> Path:
    """Write a checkpoint that answers as the run does, to half precision or eight bits, and cannot be resumed."""
    best = load(run)
    return write_packed(best.state, best.tensors("weights"), out, bits)


def write_packed(state: RunState, weights: dict[str, Tensor], out: Path, bits: Bits | None = 16) -> Path:
    """``bits`` None keeps the weights as they are."""
    if bits:
        weights = rounded(weights, bits)
    state = replace(state, optimiser={}, numpy_generator={}, window={}, digests={})
    with RunLock(out):
        return save(out, state, {"weights": weights, "optimiser": {}, "random": {}})
