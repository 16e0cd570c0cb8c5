"""What a run leaves on disk: its folders, which to read and which are deleted, what ``state.json`` holds, and weights.

Weights that are shared are kept in half precision, or in eight bits and a scale for each row:

    w ~ scale_row * q,  scale_row = max |w_row| / 127,  q a whole number from -127 to 127

The largest error of a row is half its scale. Small tensors (biases, BatchNorm) stay in half precision.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.files import SQUEEZED, remove_own
from engram.ledger import software_versions
from engram.protocol import Protocol
from engram.structure import check_types, structure

OWN = ("*.safetensors", f"*.safetensors{SQUEEZED}", "state.json")
"""files of a checkpoint; no other is ever deleted"""
FOLDER = re.compile(r"(step|best)-(\d{8,})")


def last_step(run_folder: Path) -> Path | None:
    """The newest ``step-`` folder of a run, if it has one."""
    return found(run_folder).get("step")


def publish(temporary: Path, final: Path) -> None:
    """Give a complete folder its name; one of that name from before is moved aside first and then removed."""
    aside = final.with_name(".replaced")
    remove(aside)
    if final.exists():
        os.replace(final, aside)
    os.replace(temporary, final)
    remove(aside)


def found(run_folder: Path) -> dict[str, Path]:
    """The newest folder of each kind."""
    return {kind: max(folders)[1] for kind in ("best", "step") if (folders := numbered(run_folder, kind))}


def numbered(run_folder: Path, kind: str) -> list[tuple[int, Path]]:
    """The folders of one kind with their iterations."""
    folders = ((FOLDER.fullmatch(path.name), path) for path in run_folder.glob(f"{kind}-*") if path.is_dir())
    return [(int(match[2]), path) for match, path in folders if match]


def remove(*folders: Path) -> None:
    """Delete checkpoints; one that cannot be deleted is left, as the run goes on without."""
    for folder in folders:
        with suppress(OSError):
            remove_own(folder, OWN)


def refuse_run(folder: Path) -> None:
    """Refuse a folder to write to that holds a run or a checkpoint: writing would delete what is there."""
    held = sorted(path.name for path in found(folder).values())
    if held or (folder / "state.json").exists():
        raise EngramError(f"{folder} holds a run up to {(held or ['its state.json'])[-1]}: choose another folder")


def choose(path: Path, which: str) -> Path:
    """The best or the last checkpoint of a run folder, or the other where that is not there."""
    if not path.exists():
        raise EngramError(f"there is no checkpoint at {path}: give a run folder or one of its step- or best- folders")
    if FOLDER.fullmatch(path.name):
        raise EngramError(f"the checkpoint {path} lacks state.json: {way_out(path)}")
    there = found(path) if path.is_dir() else {}
    order = ("best", "step") if which == "best" else ("step", "best")
    for kind in order:
        if kind in there:
            return there[kind]
    raise EngramError(f"{path} is not a checkpoint: it has neither a state.json nor step- or best- folders")


def way_out(folder: Path) -> str:
    """What a person can do about a checkpoint that cannot be used."""
    others = [p for p in found(folder.parent).values() if p != folder]
    return f"use {others[0]} instead" if others else "copy it again from its source, or train again"


FORMAT_VERSION = 3
"""2: the weights may be those of a moving average; 3: files of tensors may be squeezed"""
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
    """sha256 of each safetensors file, before it was squeezed"""
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


Bits = Literal[8, 16]
SCALE = ":scale"
"""ends the name of a tensor that holds the scales of another"""
SMALLEST = 4096
"""numbers of a tensor that is worth eight bits"""


def rounded(weights: Mapping[str, Tensor], bits: Bits = 16) -> dict[str, Tensor]:
    """The same names, and for eight bits one more with the scales of each rounded matrix. Whole numbers stay."""
    result: dict[str, Tensor] = {}
    for name, value in weights.items():
        if not value.is_floating_point():
            result[name] = value
        elif bits == 16 or value.dim() < 2 or value.numel() < SMALLEST:
            result[name] = value.half()
        else:
            rows = value.float().flatten(1)
            scale = rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
            result[name] = (rows / scale).round().to(torch.int8).view(value.shape)
            result[name + SCALE] = scale[:, 0]
    return result


def restored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo the eight bits: what has scales is multiplied by them; all else is left as it is."""
    result = {name: value for name, value in tensors.items() if not name.endswith(SCALE)}
    for name in tensors.keys() - result.keys():
        of = name.removesuffix(SCALE)
        if of not in result or tensors[name].shape != result[of].shape[:1]:
            raise ValueError(f"{name} are scales of no tensor")
        result[of] = result[of].float() * tensors[name].view(-1, *[1] * (result[of].dim() - 1))
    return result
