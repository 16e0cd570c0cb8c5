"""What ``state.json`` of a checkpoint holds, and whether what was read can be that."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from engram.errors import EngramError
from engram.ledger import software_versions
from engram.protocol import Protocol
from engram.structure import check_types, structure

FORMAT_VERSION = 2
"""2: the weights may be those of a moving average"""
LARGEST, MOST_NUMBERS = 2**62, 2**24
"""of an iteration; of one image or one row of features"""
Chosen = Literal["weights", "average"]


@dataclass(frozen=True)
class RunState:
    """What ``state.json`` holds: a run up to one iteration, without its tensors."""

    method: str
    recipe: dict[str, Any]
    recipe_digest: str
    image_shape: tuple[int, ...]
    dataset_digest: str
    """of the training split; the validation split's is in ``validation``"""
    validation: dict[str, Any]
    """the validation protocol"""
    run_id: str
    iteration: int
    numpy_generator: dict[str, Any]
    optimiser: dict[str, Any]
    """structure of optimiser.safetensors"""
    curves: dict[str, list[int | float]]
    window: dict[str, Any]
    """sums and counts of the losses since the last validation"""
    best_accuracy: float | None
    best_iteration: int
    seconds: float
    validation_seconds: float
    features: str = ""
    """who made the features it was trained on; "" for images, and for features in runs of before this was kept"""
    revision: int = 0
    start: dict[str, str] = field(default_factory=dict)
    """revision of the method (`engram.card`) when the run began; digests of the weights and features it started from"""
    chosen: Chosen = "weights"
    """which of the two the latest validation found better"""
    processes: int = 1
    """that made the run together"""
    digests: dict[str, str] = field(default_factory=dict)
    """sha256 of each safetensors file"""
    engram_version: str = field(default_factory=lambda: software_versions()["engram"])
    format_version: int = FORMAT_VERSION


def checked_state(raw: dict[str, Any]) -> RunState:
    """A state whose keys are of their kinds and whose numbers a run can have; else a ValueError, here at the door."""
    try:
        state = structure(raw, RunState, "in it")
        check_types(state.validation, Protocol, "its validation")
    except EngramError as error:
        raise ValueError(str(error)) from error
    wrong = [
        key
        for key in ("iteration", "best_iteration", "revision", "processes")
        if not 0 <= getattr(state, key) < LARGEST
    ]
    wrong += [key for key in ("seconds", "validation_seconds") if not 0 <= getattr(state, key) < math.inf]
    for key in wrong:
        raise ValueError(f"its {key} is {getattr(state, key)}")
    shape = state.image_shape
    if len(shape) not in (1, 3) or min(shape) < 1 or math.prod(shape) > MOST_NUMBERS:
        raise ValueError(f"its image_shape is {shape}")
    if len({len(curve) for curve in state.curves.values()}) > 1:
        raise ValueError("its curves have several lengths")
    return state
