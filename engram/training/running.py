"""Where a call of training ends, how its steps are made and shown, what makes them fast while it lasts, and where
images lie: on the device within a budget of bytes, else on disk.

Several processes share out each step: each draws the tasks of a whole step and learns from its share of them.
`engram.machine.together` brings them together; `engram.processes` is how they tell each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from engram import processes
from engram.data.store import Store
from engram.errors import EngramError
from engram.machine.cards import available_memory
from engram.machine.device import kept_memory
from engram.nn import kernels
from engram.nn.synchronised_norm import synchronise
from engram.processes import Share
from engram.recipes.schema import Recipe
from engram.types import Method


@dataclass(frozen=True)
class Limits:
    """Where a call ends before its recipe does."""

    max_minutes: float | None = None
    """wall time of this call, validations included"""
    max_iterations: int | None = None
    """counted from the start of the run, also where it is resumed"""
    whole_run: bool = False
    """max_minutes counts from the start of the run too: a time box that a stop and a resumption leave as it is"""

    def __post_init__(self) -> None:
        for name, value in (("max_minutes", self.max_minutes), ("max_iterations", self.max_iterations)):
            if value is not None and not value > 0:  # nan is refused too
                raise EngramError(f"{name} = {value} but it must be above 0")

    def share_spent(self, seconds: float) -> float:
        return 0.0 if self.max_minutes is None else seconds / (60 * self.max_minutes)

    def seconds_left(self, seconds: float) -> float:
        return float("inf") if self.max_minutes is None else 60 * self.max_minutes - seconds


@dataclass(frozen=True)
class Running:
    """How steps are made and shown. What is learned depends on none of it but precision and, by BatchNorm,
    micro_batch."""

    precision: str | None = None
    """in place of the recipe's"""
    plain: bool = False
    """without kernels of our own and captured steps"""
    micro_batch: int = 0
    """sequences that go through the model at a time; 0: all of a step"""
    store_memory: str | None = None
    """for the images, such as 2GB, on the GPU or of the machine; what is more is read from disk"""
    progress: bool = True
    """a bar on the terminal"""
    tensorboard: bool = True
    """event files in the run folder's ``tensorboard``"""


WHOLE, USUAL = Limits(), Running()
SWITCHES: tuple[tuple[Any, str], ...] = (
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cudnn, "benchmark"),
)


@contextmanager
def fast_arithmetic(device: torch.device, plain: bool = False) -> Iterator[kernels.Use]:
    """While training: TF32 and cuDNN's search for fast kernels on a GPU, memory kept on the CPU; and kernels of our
    own, unless ``plain``. What has been had of these is told by what it gives."""
    switches = SWITCHES if device.type == "cuda" else ()
    before = [getattr(module, name) for module, name in switches]
    memory = nullcontext() if device.type == "cuda" else kept_memory()
    with memory, kernels.plain(plain), kernels.training() as use:
        try:
            for module, name in switches:
                setattr(module, name, True)
            yield use
        finally:
            for (module, name), value in zip(switches, before, strict=True):
                setattr(module, name, value)


def share_out(recipe: Recipe, method: Method) -> tuple[Share, Share]:
    """What this process takes of a step's sequences and of its base-class images; refused where they do not divide.

    Where the recipe asks for it, the method's BatchNorm goes by all of them from now on.
    """
    mine, whole = processes.mine(), method.goes_whole
    for table, key, size in (
        ("train", "sequences", recipe.train.sequences),
        ("data", "class_batch", recipe.data.class_batch),
    ):
        if size % mine.count and key != whole:
            near = max(mine.count, round(size / mine.count) * mine.count)
            raise EngramError(
                f"{recipe.name} [{table}]: {key} = {size} does not divide among {mine.count} processes: set it to "
                f"{near}, or use another number of devices"
            )
    if mine.count > 1 and recipe.train.batch_norm_sync == "synchronised":
        synchronise(method)
    return (processes.ALL if whole == "sequences" else mine), (processes.ALL if whole == "class_batch" else mine)


def seed_step(seed: int, iteration: int) -> None:
    """What a method draws by itself in a step differs from process to process: the first goes on as if it were alone,
    and the others begin anew, so that they have no state to be saved."""
    if rank := processes.mine().rank:
        torch.manual_seed(hash((seed, iteration, rank)) % 2**63)


UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def read_size(text: str) -> int:
    """Bytes of a size such as 2GB, 500MB or 0."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Z]*)", text.strip().upper())
    if not found or found[2] not in UNITS:
        raise EngramError(f"store_memory = '{text}' is no size: give a number of bytes, or one with a unit such as 2GB")
    return int(float(found[1]) * UNITS[found[2]])


class Room:
    """Memory of a device that images may take: the size given, else half of what is free."""

    def __init__(self, device: torch.device, size: str | None = None) -> None:
        self.device, self.asked = device, size is not None
        self.left = free_memory(device) // 2 if size is None else read_size(size)

    def place(self, store: Store) -> Store:
        """The store with its images on the device where there is room for them; else as it is, to be read past the
        system's cache of files where that could not hold it either."""
        if store.file is None and store.images.device == self.device:
            return store
        if store.n_bytes > self.left:
            return store.past_cache() if store.n_bytes > available_memory() else store
        try:
            placed = store.to(self.device)
        except torch.OutOfMemoryError:
            return store
        self.left -= store.n_bytes
        return placed

    def fill(self, store: Store) -> Store:
        """A store that stayed on disk, with as many of its images on the device as are left of the size given; without
        one they all stay there, as others may count on that memory."""
        if store.file is None or not self.asked:
            return store
        try:
            return store.with_near(self.left, self.device)
        except torch.OutOfMemoryError:
            return store


def free_memory(device: torch.device) -> int:
    """Bytes; those count too that torch keeps for later."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    return available_memory()
