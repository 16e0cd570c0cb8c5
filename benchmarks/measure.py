"""What the benchmarks share: a clock that waits for the device, steps timed as the loop makes them, random images, and
the file a measurement is written to."""

from __future__ import annotations

import os
import resource
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
import torch

from engram.data.catalogue import spec_of
from engram.data.store import Store
from engram.errors import EngramError
from engram.ledger import current_commit, new_run_id, readable, software_versions, utc_now
from engram.machine.device import describe_device
from engram.training.loop import READ_EVERY
from engram.training.trainer import Trainer

Result = TypeVar("Result")
LOAD = round(os.getloadavg()[0], 2)
"""of others, before the benchmark begins: at its end it would be its own"""
BUSY = 1.5
"""load average above which the machine is too busy for a figure to be kept"""
LOOKS = 5
"""at the losses in a block of steps on a GPU"""
IMAGES_PER_CLASS = 40
"""of synthetic data: more than most recipes draw of a class"""


@dataclass(frozen=True)
class Measurement:
    """One JSON of results/speed."""

    benchmark: str
    device: str
    setting: dict[str, Any]
    step_total_ms: float | None
    """the whole step from end to end; None where nothing is stepped"""
    parts_ms: dict[str, float]
    """medians; measured apart, so they need not add up to the whole"""
    rates: dict[str, float] = field(default_factory=dict)
    roofline: dict[str, Any] = field(default_factory=dict)
    """what the estimate of the least time is made of: `benchmarks.roofline`"""
    growth: dict[str, dict[str, Any]] = field(default_factory=dict)
    """sizes, milliseconds and log-log slope of whatever was made larger: `benchmarks.growth`"""
    cases: list[dict[str, Any]] = field(default_factory=list)
    """a row for each thing that was compared"""
    load_average: float = LOAD
    commit: str = field(default_factory=current_commit)
    versions: dict[str, str] = field(default_factory=software_versions)
    measured: str = field(default_factory=utc_now)

    def write(self, folder: Path, name: str) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.{new_run_id()}.json"
        kept = {
            name: value for name, value in asdict(self).items() if value or name not in ("roofline", "growth", "cases")
        }
        path.write_text(readable(kept))
        return path


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Clock:
    """Collects seconds by name; each part starts and ends with an idle device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, list[float]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        synchronise(self.device)
        started = time.perf_counter()
        yield
        synchronise(self.device)
        self.seconds.setdefault(name, []).append(time.perf_counter() - started)


def synthetic_store(
    dataset: str, split: str, images_per_class: int = IMAGES_PER_CLASS, image_size: int | None = None
) -> Store:
    """Random pixels in the shape and with the classes of a dataset, or squares of another size."""
    spec = spec_of(dataset)
    classes = spec.classes.get(split, 100)
    channels, *sides = spec.image_shape
    shape = (classes * images_per_class, channels, *([image_size] * 2 if image_size else sides))
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    return Store.from_arrays(images, [images_per_class] * classes, dataset, split)


def whole_steps(trainer: Trainer, blocks: int, warm_up: int, looks: int = LOOKS) -> float:
    """Median seconds of a step as the loop makes it: on a GPU in blocks, looked at as the loop does, else each step."""
    on_gpu, seconds = trainer.device.type == "cuda", []
    looks, length = (looks, READ_EVERY) if on_gpu else (1, 1)
    for block in range(-warm_up, blocks):
        synchronise(trainer.device)
        started = time.perf_counter()
        for _ in range(looks):
            for _ in range(length):
                trainer.step(0.0)
            trainer.read_losses(lag=on_gpu)
        synchronise(trainer.device)
        if block >= 0:
            seconds.append((time.perf_counter() - started) / (looks * length))
    return median(seconds)


def peak_memory_mib(device: torch.device) -> float:
    """The most that tensors took on a GPU since its count was reset; on the CPU the most the process ever took."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 1)


def median_ms(call: Callable[[], object], repeats: int, warm_up: int = 3) -> float:
    for _ in range(warm_up):
        call()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return round(1000 * median(seconds), 3)


def name_of(device: torch.device) -> str:
    return describe_device(device)


def tell_load() -> None:
    if LOAD > BUSY:
        print(f"load average {LOAD:.2f} before the start: others use this machine, so the figures are too high")


def measured(measure: Callable[[Namespace], Result], arguments: Namespace) -> Result:
    """What ``measure`` gives, or its one sentence on what is wrong and status 2."""
    try:
        if arguments.repeats < 1:
            raise EngramError(f"--repeats = {arguments.repeats} but a median needs at least 1")
        return measure(arguments)
    except EngramError as error:
        print(f"engram: {error}", file=sys.stderr)
        sys.exit(2)
