"""Remembered pictures on disk, in a store that only grows: a crash leaves it as before a batch or after, never less.

A folder of these files, all little-endian:

- ``features.bin``: row after row what the engine keeps of a picture, in the type and shape that the journal begins with
- ``entries.bin``: 16 bytes for each row: class (int32), task (int32), digest of the picture's content (int64)
- ``journal.jsonl``: a line that says what a row is, then one for each batch: the rows in all, the classes it brought,
  the SHA-256 of what it added to either file. A line carries the SHA-256 of the line before and of itself.
- ``index.bin``: 32 bytes of SHA-256 and an `Index` as safetensors. It follows from the others and is made anew where it
  is missing.

A batch counts once its line is whole. What lies beyond the last line is an interrupted write; the next one replaces it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from engram.classifier import disk
from engram.classifier import memory as memories
from engram.classifier.index import Index, Rows
from engram.classifier.memory import Memory, Stored, in_half
from engram.errors import EngramError
from engram.files import open_regular

FORMAT_VERSION = 1
FEATURES, ENTRIES, JOURNAL, INDEX = "features.bin", "entries.bin", "journal.jsonl", "index.bin"
STORED = (FEATURES, ENTRIES, JOURNAL, INDEX, ".*.new")
"""files of a store; no other is ever deleted"""
ENTRY = np.dtype([("label", "<i4"), ("task", "<i4"), ("digest", "<i8")])
TYPES = ("float16", "float32", "uint8")
TOGETHER = 4096
"""rows written at once"""


@dataclass(frozen=True)
class Store:
    folder: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    """of a row"""
    classes: tuple[Any, ...]
    rows: int
    batches: tuple[tuple[int, str, str], ...]
    """rows in all after each, SHA-256 of its features and of its entries"""
    seal: str
    """SHA-256 of the last line"""
    end: int
    """bytes of the journal's whole lines"""

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape))

    def append(self, memory: Memory) -> Store:
        """The entries of a memory that the store has not: they alone are written."""
        if len(memory.labels) == self.rows:
            return self
        if tuple(memory.items.shape[1:]) != self.shape:
            raise EngramError(
                f"{self.folder} holds rows of {list(self.shape)} numbers but these have "
                f"{list(memory.items.shape[1:])}: they were seen by another encoder"
            )
        parts = [part[self.rows :].numpy() for part in (memory.labels, memory.tasks, memory.digests)]
        entries = np.rec.fromarrays(parts, dtype=ENTRY).tobytes()
        try:
            digest = self._append_features(memory.rows)
            disk.append(self.folder / ENTRIES, self.rows * ENTRY.itemsize, entries)
            batch = (len(memory.labels), digest, hashlib.sha256(entries).hexdigest())
            line = dict(zip(("rows", "features", "entries"), batch, strict=True))
            data, seal = _line({**line, "classes": memory.classes[len(self.classes) :]}, self.seal)
            disk.append(self.folder / JOURNAL, self.end, data)
        except OSError as error:
            raise disk.unwritten(self.folder, error) from error
        grown = replace(self, classes=memory.classes, rows=len(memory.labels), batches=(*self.batches, batch))
        return replace(grown, seal=seal, end=self.end + len(data))

    def _append_features(self, rows: Rows) -> str:
        digest = hashlib.sha256()
        for start in range(self.rows, len(rows), TOGETHER):
            part = rows[slice(start, start + TOGETHER)].contiguous().numpy().astype(self.dtype, copy=False)
            digest.update(part.data)
            disk.append(self.folder / FEATURES, start * self.row_bytes, part.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def memory(self) -> Memory:
        """What is remembered; many rows stay on disk and are read as they are needed."""
        entries = self._read(ENTRIES, ENTRY.itemsize)
        self._check(ENTRIES, entries, ENTRY.itemsize, 2)
        table = np.frombuffer(entries, ENTRY)
        labels, tasks, digests = (torch.from_numpy(table[name].astype(np.int64)) for name in ENTRY.names or ())
        stored = Stored(self.folder, self.rows, True)
        if self.rows <= memories.MOST_EXACT:
            data = self._read(FEATURES, self.row_bytes)
            self._check(FEATURES, data, self.row_bytes, 1)
            items = torch.from_numpy(np.frombuffer(bytearray(data), self.dtype).reshape(-1, *self.shape))
            items = items.float() if items.dtype == torch.float16 else items
            return Memory(self.classes, items, labels, tasks, digests, stored)
        self._check_length(FEATURES, self.row_bytes)
        # a private mapping: PyTorch wants memory that it could write to, and the file stays as it is
        mapped = np.memmap(self.folder / FEATURES, self.dtype, "c", shape=(self.rows, *self.shape))
        rows = Rows((torch.from_numpy(mapped),))
        return Memory(self.classes, rows, labels, tasks, digests, stored, self._index())

    def _read(self, name: str, size: int) -> bytes:
        self._check_length(name, size)
        if not self.rows:
            return b""  # nothing was ever written
        try:
            with open_regular(self.folder / name) as file:
                return file.read(self.rows * size)
        except OSError as error:
            raise EngramError(f"{self.folder / name} cannot be read ({error}): restore it from a copy") from error

    def _check_length(self, name: str, size: int) -> None:
        path = self.folder / name
        if (length := path.stat().st_size if path.is_file() else 0) < self.rows * size:
            raise EngramError(
                f"{path} has {length} bytes where {self.rows} pictures need {self.rows * size}: restore it from a copy"
            )

    def _check(self, name: str, data: bytes, size: int, column: int) -> None:
        start = 0
        for batch in self.batches:
            end = int(batch[0]) * size
            if hashlib.sha256(memoryview(data)[start:end]).hexdigest() != batch[column]:
                raise EngramError(f"{self.folder / name} is damaged or was changed: restore it from a copy")
            start = end

    def write_index(self, index: Index) -> None:
        """It only saves time: where it cannot be written nothing is lost."""
        data = tensors_to_bytes({f.name: getattr(index, f.name).contiguous() for f in fields(Index)})
        try:
            disk.put(self.folder / INDEX, hashlib.sha256(data).digest() + data)
        except OSError as error:
            raise disk.unwritten(self.folder / INDEX, error) from error

    def _index(self) -> Index | None:
        try:
            with open_regular(self.folder / INDEX) as file:
                data = file.read()
            if hashlib.sha256(data[32:]).digest() != data[:32]:
                return None
            index = Index(**tensors_from_bytes(data[32:]))
        except (OSError, TypeError, ValueError):
            return None
        fits = len(index.order) <= self.rows and index.centres.shape[1] == int(np.prod(self.shape))
        return index if fits else None


def create(folder: Path, memory: Memory) -> Store:
    """A new store of a memory; above `MOST_EXACT` pictures in half precision, where features fit in it."""
    items = memory.items if isinstance(memory.items, Tensor) else memory.items.blocks[0]
    dtype = str((items if memory.exact else in_half(items[:TOGETHER])).dtype).removeprefix("torch.")
    header = {"format_version": FORMAT_VERSION, "dtype": dtype, "shape": list(items.shape[1:])}
    data, seal = _line(header, "")
    try:
        folder.mkdir()
        disk.append(folder / JOURNAL, 0, data)
    except OSError as error:
        raise disk.unwritten(folder, error) from error
    return Store(folder, np.dtype(dtype), tuple(items.shape[1:]), (), 0, (), seal, len(data)).append(memory)


def open_store(folder: Path) -> Store:
    path = folder / JOURNAL
    try:
        with open_regular(path) as file:
            data = file.read()
        lines = data[: data.rfind(b"\n") + 1].splitlines()
        raw, seal = _opened(lines[0], "")
        if raw["format_version"] != FORMAT_VERSION:
            raise EngramError(
                f"{path} has format version {raw['format_version']} but this Engram reads {FORMAT_VERSION}: use the "
                f"version that wrote it"
            )
        if raw["dtype"] not in TYPES:
            raise ValueError(f"rows of {raw['dtype']}")
        classes: list[Any] = []
        batches = []
        for line in lines[1:]:
            batch, seal = _opened(line, seal)
            classes += batch["classes"]
            batches.append((int(batch["rows"]), str(batch["features"]), str(batch["entries"])))
        rows = batches[-1][0] if batches else 0
        shape = tuple(int(size) for size in raw["shape"])
        end = sum(len(line) + 1 for line in lines)
        return Store(folder, np.dtype(raw["dtype"]), shape, tuple(classes), rows, tuple(batches), seal, end)
    except OSError as error:
        raise EngramError(f"{path} cannot be read ({error}): restore it from a copy") from error
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise EngramError(f"{path} is damaged or was changed ({error}): restore it from a copy") from error


def _line(content: dict[str, Any], before: str) -> tuple[bytes, str]:
    text = json.dumps(content, sort_keys=True)
    seal = hashlib.sha256((before + text).encode()).hexdigest()
    return (json.dumps({"content": content, "digest": seal}, sort_keys=True) + "\n").encode(), seal


def _opened(line: bytes, before: str) -> tuple[dict[str, Any], str]:
    raw = json.loads(line)
    _, seal = _line(raw["content"], before)
    if raw["digest"] != seal:
        raise ValueError("a line is not as it was written")
    return raw["content"], seal
