"""What both benchmarks share: a clock that waits for the device, medians, and the file a measurement is written to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engram.ledger import current_commit, new_run_id, software_versions, utc_now
from engram.train.run import describe_device

BUSY = 1.5
"""load average above which the machine is too busy for a figure to be kept"""


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
    load_average: float = field(default_factory=lambda: round(os.getloadavg()[0], 2))
    commit: str = field(default_factory=current_commit)
    versions: dict[str, str] = field(default_factory=software_versions)
    measured: str = field(default_factory=utc_now)

    def write(self, folder: Path, name: str) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.{new_run_id()}.json"
        path.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")
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
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"load average {load:.2f}: others use this machine, so the figures are too high")
