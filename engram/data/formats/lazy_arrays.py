"""Bytes and arrays that stay in their file until they are looked at, so that a dataset need not fit into memory."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from engram.errors import EngramError


class OpenFile:
    """A file that stays open as long as this is held."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.descriptor = os.dup(stream.fileno())
        self.size = os.fstat(self.descriptor).st_size
        weakref.finalize(self, os.close, self.descriptor)

    def read(self, start: int, size: int) -> bytes:
        parts = []
        while size and (part := os.pread(self.descriptor, size, start)):
            parts.append(part)
            start, size = start + len(part), size - len(part)
        if size:
            raise EngramError("a file of the dataset was cut short while it was read: fetch it again")
        return parts[0] if len(parts) == 1 else b"".join(parts)


class Span:
    """``size`` bytes of a file from ``start`` on."""

    __slots__ = ("file", "size", "start")

    def __init__(self, file: OpenFile, start: int, size: int) -> None:
        if start + size > file.size:
            raise ValueError("it ends too early")
        self.file, self.start, self.size = file, start, size

    def read(self) -> bytes:
        return self.file.read(self.start, self.size)


class LazyArray(Span):
    """An array in C order in a file: a row of it is read when it is asked for, all of it by `numpy.asarray`."""

    __slots__ = ("dtype", "shape")

    def __init__(self, file: OpenFile, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(file, start, math.prod(shape) * dtype.itemsize)
        self.shape, self.dtype = shape, dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, row: int) -> np.ndarray:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        size = self.size // len(self)
        return np.frombuffer(self.file.read(self.start + row * size, size), self.dtype).reshape(self.shape[1:])

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.frombuffer(self.read(), self.dtype).reshape(self.shape).astype(dtype or self.dtype)
