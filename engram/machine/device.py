"""What a run takes of its device, and who else is on it: without that the seconds of a record say little.

A failed run tells in one sentence of a full memory and of a user's own classes; anything else stays as it is.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from engram.errors import EngramError
from engram.machine.cards import power_share
from engram.recipes import Recipe

MIB = 2**20


class DeviceUse:
    """Looks at the device when a run begins and when it ends; `summary` is what its record keeps."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.others: int | None = None
        self.power_share: list[float | None] = []
        self.used = self.load = 0.0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self.look()

    def look(self) -> None:
        if self.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.device)
            self.used = max(self.used, (total - free) / MIB)
            if (others := _other_processes()) is not None:
                self.others = max(self.others or 0, others)
        else:
            self.load = max(self.load, os.getloadavg()[0])

    def look_at_work(self) -> None:
        """While steps are made, once: how much of its power a GPU draws for them."""
        if self.device.type == "cuda" and not self.power_share:
            self.power_share.append(power_share(self.device.index or 0))

    def summary(self) -> dict[str, Any]:
        """GPU: own peak, all that was taken, other processes, share of its power (None: unknown). CPU: own peak, load
        average, cores."""
        self.look()
        if self.device.type == "cuda":
            own = torch.cuda.max_memory_reserved(self.device) / MIB
            taken = round(max(self.used, own))
            told = {"peak_memory_mib": round(own), "device_memory_used_mib": taken, "other_processes": self.others}
            return told | {"power_share": next(iter(self.power_share), None)}
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"peak_memory_mib": round(own), "load_average": round(self.load, 2), "cores": os.cpu_count()}


def _other_processes() -> int | None:
    """Processes on the machine's GPUs beside this one, which has a context by now; None where nobody can tell."""
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return max(0, len(set(listed)) - 1) if listed else None


TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""names of two settings in glibc's malloc.h"""


@contextmanager
def kept_memory() -> Iterator[None]:
    """While it lasts the process keeps what it frees, and its peak; after it everything goes back.

    glibc hands large blocks to the system as soon as they are freed, so a step on the CPU would be given each page of
    its maps anew, zeroed: a third of its time. The price is a peak about 1.4 times as high: an aligned block does not
    fit the gap of its like at once. Other C libraries are left as they are.
    """
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    library = ctypes.CDLL(None)
    library.mallopt(MMAP_MAX, 0)
    library.mallopt(TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        library.mallopt(MMAP_MAX, 65536)  # glibc's own choices
        library.mallopt(TRIM_THRESHOLD, 128 * 1024)
        library.malloc_trim(0)


def choose_device(name: str = "auto") -> torch.device:
    """``auto`` is the first GPU where there is one, else the CPU; a GPU that is not there gets one sentence."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if count else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise EngramError(f"there is no device '{name}': it takes auto, cpu, cuda or a numbered GPU such as cuda:1")
    if device.type == "cpu":
        return torch.device("cpu")
    if not count:
        raise EngramError(f"device '{name}' was asked for but this machine has no usable CUDA GPU: use cpu or auto")
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= count:
        raise EngramError(f"device '{name}' was asked for but this machine has {count} CUDA GPU(s), from cuda:0 on")
    return torch.device("cuda", index)


def describe_device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"


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
