"""Images of the coming steps, read from the disk while the present step is at work: by processes of their own for a
GPU, which would wait for threads that take turns with its steps, by threads else."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from engram.data.rows import THREADS, Readers, can_share
from engram.data.store import Store

DEPTH = 4
"""steps that are drawn and read before they are made"""
Lists = dict[str, np.ndarray]
Read = tuple[Tensor, Callable[[], object]]
"""images in memory, pinned for a GPU, and what waits until they are there"""


class Reading(Protocol):
    """How images are read."""

    def begin(self, rows: np.ndarray, most: int) -> Read:
        """Rows by number: (n,) -> (n, ...); a step of this size has at most so many."""

    def sent(self, images: Tensor) -> None:
        """These are on their way to a GPU: their place is free once all that was asked of the stream is done."""


@dataclass(frozen=True)
class _Planned:
    lists: Lists
    state: Mapping[str, Any]
    """of the generator of tasks, once these lists are drawn"""
    read: Read
    near: Tensor
    """rows of those images of the step, its last ones, that are on the device"""


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
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._reading = self._way()

    @property
    def far_bytes(self) -> int:
        """Of the images that are read from the disk."""
        near = self.store.near
        return self.store.n_bytes - (0 if near is None else near.numel() * near.element_size())

    def forget(self) -> None:
        """Whatever is drawn and not given yet: the generator starts elsewhere."""
        self._planned.clear()
        self.state, self._reading = None, self._way()

    def _way(self) -> Reading:
        alone = self._side is not None and self.store.file is not None and can_share()
        return ByProcesses(self.store, self._side) if alone else ByThreads(self.store, self._side)

    def next(self) -> Lists:
        while len(self._planned) <= DEPTH:
            self._planned.append(self._plan())
        step = self._planned.popleft()
        images, wait = step.read
        wait()
        self._bring(images, step.near)
        self.state = step.state
        return step.lists

    def _plan(self) -> _Planned:
        lists = self.draw()
        parts = {name: rows for name, rows in lists.items() if name.endswith("rows")}
        rows = np.concatenate([part.ravel() for part in parts.values()])
        is_near = rows < (0 if self.store.near is None else len(self.store.near))
        order = np.argsort(is_near, kind="stable")  # those to be read, then those that are there
        places = np.empty_like(order)
        places[order] = np.arange(len(rows))
        for (name, part), found in zip(parts.items(), np.split(places, _ends(parts)), strict=True):
            lists[name] = found.reshape(part.shape)
        near = torch.from_numpy(rows[is_near])
        if self._side is not None and len(near):
            near = near.pin_memory()
        read = self._reading.begin(rows[~is_near], len(rows))
        return _Planned(lists, self.generator.bit_generator.state, read, near)

    def _bring(self, images: Tensor, near: Tensor) -> None:
        """All calls of CUDA are made here, by the thread of the steps: another's would break a capture."""
        size = len(images) + len(near)
        if self.at_hand is self.store or len(self.at_hand.images) < size:
            place = torch.empty((size, *self.store.image_shape), dtype=images.dtype, device=self.device)
            self.at_hand = Store(place, self.store.offsets, self.store.info)
        if self._side is not None:
            with torch.cuda.stream(self._side):
                there, rows = (part.to(self.device, non_blocking=True) for part in (images, near))
            self._reading.sent(images)
            present = torch.cuda.current_stream(self.device)
            present.wait_stream(self._side)
            for part in (there, rows):
                part.record_stream(present)
            images, near = there, rows
        self.at_hand.images[: len(images)].copy_(images)
        if self.store.near is not None:
            torch.index_select(self.store.near, 0, near, out=self.at_hand.images[len(images) : size])


def _ends(parts: Mapping[str, np.ndarray]) -> list[int]:
    """Where each part but the last ends in all of them together."""
    return np.cumsum([part.size for part in parts.values()])[:-1].tolist()


class ByThreads:
    """Threads of this process, each step into memory of its own."""

    def __init__(self, store: Store, side: torch.cuda.Stream | None) -> None:
        self.store, self.pinned = store, side is not None
        self.pool = ThreadPoolExecutor(THREADS, "reading")

    def begin(self, rows: np.ndarray, most: int) -> Read:
        shape, dtype = (len(rows), *self.store.image_shape), self.store.images.dtype
        images = torch.empty(shape, dtype=dtype, pin_memory=self.pinned)
        reads = self.store.plan(rows, images, self.pool)
        return images, lambda: [read.result() for read in reads]

    def sent(self, images: Tensor) -> None:
        """PyTorch keeps pinned memory of its own until it is read."""


class ByProcesses:
    """Processes of their own, into slots used in turn. A step of more rows than any before needs larger ones."""

    def __init__(self, store: Store, side: torch.cuda.Stream | None) -> None:
        self.store, self.side = store, side
        self.readers: Readers | None = None
        self.turn = 0
        self.sent_by: dict[int, torch.cuda.Event] = {}
        """by the place of the images in memory"""

    def begin(self, rows: np.ndarray, most: int) -> Read:
        readers = self.readers
        if readers is None or readers.rows < most:
            readers = self.readers = self._start(most)
        self.turn = (self.turn + 1) % len(readers.slots)
        place = torch.from_numpy(readers.slots[self.turn, : len(rows)])
        if event := self.sent_by.pop(place.data_ptr(), None):
            event.synchronize()
        readers.ask(self.turn, self.store.checked(rows))
        return place.view(self.store.images.dtype).view(len(rows), *self.store.image_shape), readers.wait

    def sent(self, images: Tensor) -> None:
        assert self.side is not None
        self.sent_by[images.data_ptr()] = self.side.record_event()

    def _start(self, rows: int) -> Readers:
        assert self.store.file is not None
        readers = Readers(self.store.file, DEPTH + 2, rows)
        if self.side is not None:
            # If it cannot be pinned it is copied all the same, more slowly.
            where = readers.slots.ctypes.data
            torch.cuda.cudart().cudaHostRegister(where, readers.slots.nbytes, 0)
            weakref.finalize(readers, _unpin, self.side, where)
        return readers


def _unpin(side: torch.cuda.Stream, where: int) -> None:
    side.synchronize()
    torch.cuda.cudart().cudaHostUnregister(where)
