"""Rows of a file, read where they are asked for: no more memory is taken than what they are read into.

A memory map would do as well, but what it has shown counts as memory of the process, up to the whole file.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from engram.errors import EngramError

THREADS = 32
"""that read at a time: a disk answers many questions at once, and waits take no processor"""
PARTS = 8
"""of what is read together with other things: each part costs the thread that plans it a moment"""
ALONE = 64
"""rows that are read without other threads"""


class RowFile:
    """Rows of ``row_bytes`` bytes each from byte ``start`` of a file on. It stays open as long as this is held."""

    def __init__(self, path: Path, start: int, row_bytes: int, descriptor: int | None = None) -> None:
        self.path, self.start, self.row_bytes = path, start, row_bytes
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else os.dup(descriptor)
        weakref.finalize(self, os.close, self.descriptor)
        if hasattr(os, "posix_fadvise"):  # what lies beside a row is not asked for next
            os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowFile, (self.path, self.start, self.row_bytes)

    def after(self, rows: int) -> RowFile:
        """The same file without its first rows."""
        return RowFile(self.path, self.start + rows * self.row_bytes, self.row_bytes, self.descriptor)

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Rows by number (n,) into ``out`` (n, row_bytes), bytes; those that follow each other in one piece."""
        data, size, descriptor = out.reshape(-1).data, self.row_bytes, self.descriptor
        starts = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 2) != 1)
        places = (self.start + rows[starts] * size).tolist()
        try:
            # As little as can be for each row: all threads of Python take turns at it.
            for place, (begin, end) in zip(places, pairwise((*(starts * size).tolist(), len(data))), strict=True):
                piece = data[begin:end]
                while (got := os.preadv(descriptor, (piece,), place)) != len(piece):
                    place, piece = place + got, piece[got:]
                    if not got:
                        raise self._cut_short(place + len(piece))
        except OSError as error:
            raise EngramError(f"{self.path} cannot be read ({error.strerror}): check its disk") from error

    def _cut_short(self, needed: int) -> EngramError:
        return EngramError(
            f"{self.path} has {os.fstat(self.descriptor).st_size} bytes where {needed} are needed: it was cut short; "
            f"delete its folder, and the store is built again"
        )

    def plan(self, rows: np.ndarray, out: np.ndarray, pool: Executor, parts: int = PARTS) -> list[Future[None]]:
        """`read`, shared out among the threads of a pool: done when all of these are."""
        return [pool.submit(self.read, rows[part], out[part]) for part in shares(len(rows), parts)]

    def read_all(self, rows: np.ndarray, out: np.ndarray) -> None:
        """`read` with threads of its own, where that pays."""
        if len(rows) <= ALONE:
            return self.read(rows, out)
        with ThreadPoolExecutor(THREADS) as pool:
            for part in self.plan(rows, out, pool, THREADS):
                part.result()


def shares(count: int, parts: int = PARTS) -> Iterator[slice]:
    """``count`` things in so many parts."""
    ends = np.linspace(0, count, min(count, parts) + 1).astype(int).tolist()
    return (slice(begin, end) for begin, end in pairwise(ends))
