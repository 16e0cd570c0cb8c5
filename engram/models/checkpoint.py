"""Checkpoints: complete folders of safetensors and JSON, written whole or not at all. No pickle.

A run folder holds the newest ``step-00001000`` and the best on validation ``best-00000800``. Each has
``weights.safetensors``, ``optimiser.safetensors``, ``random.safetensors`` and ``state.json`` (`RunState`); a run with a
moving average of its weights also ``average.safetensors``, whose count of steps is the iteration. Packed: ``*.gz``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from engram import spellings
from engram.errors import EngramError
from engram.files import SQUEEZED, located, read_bytes, read_squeezed, read_versioned, squeezed
from engram.models.build import PREFIX, build_method, check_code
from engram.models.run_folder import (
    FOLDER,
    FORMAT_VERSION,
    Chosen,
    RunState,
    checked_state,
    choose,
    last_step,
    numbered,
    publish,
    remove,
    restored,
    way_out,
)
from engram.nn.handed_over import for_task_norms
from engram.nn.task_norm import keeps_no_statistics
from engram.recipes.schema import Recipe, recipe_from_saved
from engram.types import Method

MOST_BYTES = 8 * 2**30
"""of a file of tensors"""
PARTS = ("weights", "optimiser", "random")
Tensors = Mapping[str, Mapping[str, Tensor]]
"""by part, those of `PARTS` and ``average`` where there is one, and by name"""
WhichWeights = Literal["chosen", "last", "average"]
"""what validation chose, those of the last step, or their moving average"""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint on disk; tensors are read when asked for."""

    folder: Path
    state: RunState

    def weights_part(self, which: WhichWeights = "chosen") -> Chosen:
        """The part that holds the weights asked for; an average where none was kept is refused."""
        parts: dict[str, Chosen] = {"chosen": self.state.chosen, "last": "weights", "average": "average"}
        if which not in parts:
            raise EngramError(f"which_weights = {which!r} but it takes one of {', '.join(parts)}")
        if which == "average" and "average" not in self.state.digests:
            raise EngramError(
                f"the checkpoint {self.folder} has no average of its weights: ask for 'chosen' or 'last', or train "
                f"with [train] average above 0"
            )
        return parts[which]

    def digest(self, which: WhichWeights = "chosen") -> str:
        """Of those weights, as records state it; "" where an old checkpoint has none."""
        return self.state.digests.get(self.weights_part(which), "")[:16]

    def tensors(
        self, part: Literal["weights", "average", "optimiser", "random"], which_weights: WhichWeights = "chosen"
    ) -> dict[str, Tensor]:
        """The tensors of one part, checked against the digest they were written with; ``weights`` are those chosen."""
        part = self.weights_part(which_weights) if part == "weights" else part
        path, read = self.folder / f"{part}.safetensors", read_bytes
        if not path.exists() and (small := path.with_name(path.name + SQUEEZED)).exists():
            path, read = small, read_squeezed
        try:
            data = read(path, MOST_BYTES)
            expected = self.state.digests.get(part)
            if expected and hashlib.sha256(data).hexdigest() != expected:
                raise EngramError(f"{path} is damaged ({len(data)} bytes, not those written): {way_out(self.folder)}")
            return restored(tensors_from_bytes(data))
        except FileNotFoundError as error:
            raise EngramError(f"the checkpoint {self.folder} lacks {path.name}: {way_out(self.folder)}") from error
        except (OSError, ValueError, SafetensorError) as error:
            raise EngramError(f"{path} cannot be read ({error}): {way_out(self.folder)}") from error

    @property
    def recipe(self) -> Recipe:
        """The recipe the run was started with; refused where it names code that nobody said may run."""
        recipe = recipe_from_saved(self.state.recipe, f"{self.folder}/state.json")
        check_code(recipe, f"{self.folder}/state.json")
        return recipe


@contextmanager
def whole(checkpoint: Checkpoint) -> Iterator[None]:
    """Whatever fails while a state is put back, as one sentence: the file holds something else."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RuntimeError) as error:
        told = " ".join(str(error).split())[:300]
        raise EngramError(
            f"{checkpoint.folder} cannot be resumed, as its state is not whole ({type(error).__name__}: {told}): "
            f"{way_out(checkpoint.folder)}"
        ) from error


def save(run_folder: Path, state: RunState, tensors: Tensors, best: bool = False, squeeze: bool = False) -> Path:
    """Write ``step-<iteration>`` (and ``best-<iteration>``), then remove the ones they replace; all or nothing.

    ``squeeze`` takes time and saves room. Whatever fails, the checkpoint written before stays as it was.
    """
    temporary, linked = run_folder / ".saving", run_folder / ".saving-best"
    step = run_folder / f"step-{state.iteration:08d}"
    try:
        remove(temporary, linked)
        temporary.mkdir(parents=True)
        digests = {}
        for part, values in tensors.items():
            # Copies: files hold plain layout, and weights shared between modules must not share memory.
            copies = {k: v.detach().to("cpu", copy=True).contiguous() for k, v in values.items()}
            data = tensors_to_bytes(copies)
            digests[part] = hashlib.sha256(data).hexdigest()
            small = squeezed(data) if squeeze else b""
            _write(temporary / f"{part}.safetensors{SQUEEZED if small else ''}", small or data)
        text = json.dumps({**asdict(state), "digests": digests}, indent=1)
        _write(temporary / "state.json", text.encode())
        if best:  # first, so that no step folder ever speaks of a best one that is not there
            shutil.copytree(temporary, linked, copy_function=_link)
            publish(linked, run_folder / f"best-{state.iteration:08d}")
        publish(temporary, step)
    except OSError as error:
        kept = last_step(run_folder)
        raise EngramError(
            f"step {state.iteration} could not be saved to {run_folder} ({error.strerror or error}): make room and "
            + (f"resume, {kept.name} is kept" if kept else "start again, no earlier checkpoint is there")
        ) from error
    finally:
        remove(temporary, linked)
    remove(*(path for _, path in numbered(run_folder, "step") if path != step))
    # A crash between best and step leaves a best one that the run, resumed from before it, has never seen.
    newest = state.iteration if best or state.best_accuracy is None else state.best_iteration
    remove(*(path for number, path in numbered(run_folder, "best") if number > newest or (best and number < newest)))
    return step


def load(path: Path, which: Literal["best", "last"] = "best", method: str | None = None) -> Checkpoint:
    """A checkpoint from its own folder or from a run folder; ``best`` falls back to the last step and vice versa.

    With ``method`` a checkpoint of another method is refused.
    """
    folder = path if ((path := located(path)) / "state.json").exists() else choose(path, which)
    where = folder / "state.json"
    try:
        raw = read_versioned(where, FORMAT_VERSION, "format_version", "format version", "update Engram")
        raw = spellings.saved_today(raw)
        state = checked_state({f.name: raw[f.name] for f in fields(RunState) if f.name in raw})
        if (named := FOLDER.fullmatch(folder.name)) and int(named[2]) != state.iteration:
            raise ValueError(f"its iteration is {state.iteration}, not that of its folder")
    except FileNotFoundError as error:
        raise EngramError(f"the checkpoint {folder} lacks state.json: {way_out(folder)}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngramError(f"{where} is not the state of a checkpoint ({error}): {way_out(folder)}") from error
    if method is not None and state.method != method:
        raise EngramError(f"the checkpoint {folder} is of method '{state.method}' but '{method}' was asked for")
    return Checkpoint(folder, state)


def load_method(
    checkpoint: Checkpoint,
    device: torch.device,
    precision: str | None = None,
    which_weights: WhichWeights = "chosen",
    **settings: Any,
) -> Method:
    """The checkpoint's method with its weights, in evaluation mode on ``device``; ``settings`` in place of its own."""
    recipe = checkpoint.recipe
    recipe = replace(recipe, method_settings={**recipe.method_settings, **settings})
    weights = checkpoint.tensors("weights", which_weights)
    method = build_method(recipe, checkpoint.state.image_shape, device, precision, weights)
    fill(method, weights, _unfit(method, checkpoint))  # whatever the run started from is not needed any more
    return method.eval()


def load_weights(method: Method, checkpoint: Checkpoint, which_weights: WhichWeights = "chosen") -> None:
    """Strictly: every name and shape must agree, else the first difference is told and nothing is changed."""
    fill(method, checkpoint.tensors("weights", which_weights), _unfit(method, checkpoint))


def load_backbone(method: Method, checkpoint: Checkpoint, name: str) -> None:
    """The checkpoint's backbone, of whichever method, into that of ``method``, which is called ``name``.

    A backbone that normalises by the images at hand takes what it has names for (`for_task_norms`).
    """
    saved, own = (
        {key: value for key, value in tensors.items() if key.startswith(PREFIX)}
        for tensors in (checkpoint.tensors("weights"), method.state_dict())
    )
    fitting = for_task_norms(saved, own) if keeps_no_statistics(method.backbone) else saved
    check_fit(own, fitting, f"the backbone in {checkpoint.folder} does not fit '{name}'")
    method.load_state_dict(fitting, strict=False)


def _unfit(method: Method, checkpoint: Checkpoint) -> str:
    return f"the weights in {checkpoint.folder} do not fit {type(method).__name__}"


def fill(module: nn.Module, weights: Mapping[str, Tensor], unfit: str) -> None:
    """Strictly; ``unfit`` begins the sentence where a name or shape differs."""
    check_fit(module.state_dict(), weights, unfit)
    module.load_state_dict(weights)


def check_fit(own: Mapping[str, Tensor], saved: Mapping[str, Tensor], sentence: str) -> None:
    """Refuse at the first name or shape that differs; ``sentence`` says of what."""
    for name in sorted(own.keys() | saved.keys()):
        if (shape := _shape(saved.get(name))) != (expected := _shape(own.get(name))):
            raise EngramError(f"{sentence}: {name} is {shape} in the file but {expected} in the model")


def _shape(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else "x".join(map(str, tensor.shape)) or "a single number"


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # before the rename, or a power cut could leave a complete name on incomplete data


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)  # the best checkpoint costs no space while it is also the last
    except OSError:
        shutil.copyfile(source, target)
