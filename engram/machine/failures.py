"""What a failed run tells: a user's own classes and a full memory get one sentence, anything else stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engram.errors import EngramError
from engram.recipes import Recipe

ALLOCATION = re.compile(r"(?:tried|unable) to allocate ([\d.]+ ?\w+)", re.IGNORECASE)
CPU_ALLOCATOR = "DefaultCPUAllocator"


@contextmanager
def explained(recipe: Recipe, device: torch.device) -> Iterator[None]:
    """Errors while a model answers come out as `explain` puts them."""
    try:
        yield
    except Exception as error:
        shown = explain(error, recipe, device, training=False)
        if shown is error:
            raise
        raise shown from error


def explain(error: Exception, recipe: Recipe, device: torch.device, training: bool = True) -> Exception:
    """The error to raise in place of ``error``: one sentence where a person can do something about it."""
    if isinstance(error, EngramError):
        return error
    if _is_out_of_memory(error):
        return EngramError(_out_of_memory(error, recipe, device, training))
    own = " with ".join(name for name in (recipe.method, recipe.backbone) if ":" in name)
    if not own:
        return error
    hint = ""
    if isinstance(error, AttributeError) and error.name in ("log_probs", "history"):
        hint = ": predict must return an engram.types.Prediction"
    return EngramError(f"{own} failed: {type(error).__name__}: {error}{hint}")


def _is_out_of_memory(error: Exception) -> bool:
    is_cpu = isinstance(error, RuntimeError) and CPU_ALLOCATOR in str(error)
    return is_cpu or isinstance(error, MemoryError | torch.OutOfMemoryError)


def _out_of_memory(error: Exception, recipe: Recipe, device: torch.device, training: bool) -> str:
    found = ALLOCATION.search(str(error))
    asked = f" ({found.group(1)} more were asked for)" if found else ""
    if not training:
        return (
            f"{recipe.method} ran out of memory on {device}{asked} while it answered: ask for fewer with --n-way, "
            f"--n-query or --n-sequences, or give another device with --device"
        )
    data, sequences = recipe.data, recipe.train.sequences
    length = max(data.stream_length_range, default=data.stream_length)
    step = f"{sequences} sequences of {length} tasks, {data.n_way}-way {data.n_shot}-shot"
    images = f" and {data.class_batch} base-class images" if data.class_batch else ""
    fewer = "lower sequences or class_batch" if data.class_batch else "lower sequences"
    return (
        f"{recipe.method} ran out of memory on {device}{asked} with {step}{images} per training step: "
        f"pass fewer at a time with --micro-batch {max(1, sequences // 2)}, {fewer} in the recipe, or give another "
        f"device with --device"
    )
