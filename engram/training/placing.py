"""Where the images of a run lie: on its device within a budget of bytes, else on disk, read ahead by threads."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.data.rows import THREADS
from engram.data.store import Store
from engram.errors import EngramError
from engram.machine.cards import available_memory

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
        self.device = device
        self.left = free_memory(device) // 2 if size is None else read_size(size)

    def place(self, store: Store) -> Store:
        """The store with its images on the device where there is room for them; else as it is."""
        if store.file is None and store.images.device == self.device:
            return store
        if store.n_bytes > self.left:
            return store
        try:
            placed = store.to(self.device)
        except torch.OutOfMemoryError:
            return store
        self.left -= store.n_bytes
        return placed


def free_memory(device: torch.device) -> int:
    """Bytes; those count too that torch keeps for later."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    return available_memory()


DEPTH = 4
"""steps that are drawn and read before they are made"""
Lists = dict[str, np.ndarray]


@dataclass(frozen=True)
class _Planned:
    lists: Lists
    state: Mapping[str, Any]
    """of the generator of tasks, once these lists are drawn"""
    images: Tensor
    """in memory, pinned for a GPU"""
    reads: list[Future[Any]]


class Ahead:
    """Steps in the order they are drawn in. `next` gives the lists of one, with rows that point into `at_hand`.

    That store holds the images of this one step, on the device and always in the same place, where a captured step
    finds them. A GPU is sent the images of a step while it is at work on the one before: nothing here waits for it.
    """

    def __init__(self, store: Store, device: torch.device, draw: Callable[[], Lists], generator: np.random.Generator):
        self.store, self.device, self.draw, self.generator = store, device, draw, generator
        self.at_hand = store
        self.state: Mapping[str, Any] | None = None
        """of the generator as the last step left it that was given; None before the first"""
        self._planned: deque[_Planned] = deque()
        self._pool = ThreadPoolExecutor(THREADS, "reading")
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None

    def forget(self) -> None:
        """Whatever is drawn and not given yet: the generator starts elsewhere."""
        self._planned.clear()
        self.state = None

    def next(self) -> Lists:
        while len(self._planned) <= DEPTH:
            self._planned.append(self._plan())
        step = self._planned.popleft()
        for read in step.reads:
            read.result()
        self._bring(step.images)
        self.state = step.state
        return step.lists

    def _plan(self) -> _Planned:
        lists = self.draw()
        parts = {name: rows for name, rows in lists.items() if name.endswith("rows")}
        rows = np.concatenate([part.ravel() for part in parts.values()])
        ends = np.cumsum([part.size for part in parts.values()])
        for (name, part), end in zip(parts.items(), ends.tolist(), strict=True):
            lists[name] = np.arange(end - part.size, end).reshape(part.shape)
        pinned = self._side is not None
        shape, dtype = (len(rows), *self.store.image_shape), self.store.images.dtype
        images = torch.empty(shape, dtype=dtype, pin_memory=pinned)
        return _Planned(lists, self.generator.bit_generator.state, images, self.store.plan(rows, images, self._pool))

    def _bring(self, images: Tensor) -> None:
        """All calls of CUDA are made here, by the thread of the steps: another's would break a capture."""
        if self.at_hand is self.store or len(self.at_hand.images) < len(images):
            place = torch.empty_like(images, device=self.device, pin_memory=False)
            self.at_hand = Store(place, self.store.offsets, self.store.info)
        if self._side is not None:
            with torch.cuda.stream(self._side):
                images = images.to(self.device, non_blocking=True)
            present = torch.cuda.current_stream(self.device)
            present.wait_stream(self._side)
            images.record_stream(present)
        self.at_hand.images[: len(images)].copy_(images)
