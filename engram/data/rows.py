"""Rows of a file, read where they are asked for: no more memory is taken than what they are read into.

A memory map would do as well, but what it has shown counts as memory of the process, up to the whole file. `Readers`
are processes that read rows into memory they share with this one: threads would take turns with its steps at Python's
lock, a moment for each row.
"""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from mmap import mmap
from pathlib import Path
from queue import SimpleQueue
from threading import Thread, local
from typing import IO, Any

import numpy as np

from engram.errors import EngramError

THREADS = 32
"""that read at a time: a disk answers many questions at once, and waits take no processor"""
PARTS = 8
"""of what is read together with other things: each part costs the thread that plans it a moment"""
ALONE = 64
"""rows that are read without other threads"""
BLOCKS = (512, 4096)
"""bytes that disks give at a time past the system's cache: places and sizes are multiples of one of these"""


class RowFile:
    """Rows of ``row_bytes`` bytes each from byte ``start`` of a file on. It stays open as long as this is held.

    ``block`` is 0 where the system's cache of files is read through; else it is the size of the pieces that the disk
    gives past it (`past_cache`).
    """

    def __init__(self, path: Path, start: int, row_bytes: int, descriptor: int | None = None, block: int = 0) -> None:
        self.path, self.start, self.row_bytes, self.block = path, start, row_bytes, block
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if block else 0)
        self.descriptor = os.open(path, flags) if descriptor is None else os.dup(descriptor)
        weakref.finalize(self, os.close, self.descriptor)
        self._own = local()
        if hasattr(os, "posix_fadvise"):  # what lies beside a row is not asked for next
            os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowFile, (self.path, self.start, self.row_bytes, None, self.block)

    def after(self, rows: int) -> RowFile:
        """The same file without its first rows."""
        start = self.start + rows * self.row_bytes
        return RowFile(self.path, start, self.row_bytes, self.descriptor, self.block)

    def past_cache(self) -> RowFile:
        """The same rows straight from the disk: for a file that the system's cache cannot hold, which would only be
        filled and emptied. The file as it is where the system or the disk has no such way."""
        for block in BLOCKS if hasattr(os, "O_DIRECT") and not self.block else ():
            with suppress(OSError):
                straight = RowFile(self.path, self.start, self.row_bytes, None, block)
                os.preadv(straight.descriptor, (mmap(-1, block),), 0)
                return straight
        return self

    def read(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Rows by number (n,) into ``out`` (n, row_bytes), bytes; those that follow each other in one piece."""
        data, size, descriptor = out.reshape(-1).data, self.row_bytes, self.descriptor
        starts = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 2) != 1)
        places = (self.start + rows[starts] * size).tolist()
        try:
            # As little as can be for each row: all threads of Python take turns at it.
            for place, (begin, end) in zip(places, pairwise((*(starts * size).tolist(), len(data))), strict=True):
                piece = data[begin:end]
                if self.block:
                    self._read_blocks(place, piece)
                    continue
                while (got := os.preadv(descriptor, (piece,), place)) != len(piece):
                    place, piece = place + got, piece[got:]
                    if not got:
                        raise self._cut_short(place + len(piece))
        except OSError as error:
            raise EngramError(f"{self.path} cannot be read ({error.strerror}): check its disk") from error

    def _read_blocks(self, place: int, piece: memoryview) -> None:
        """Whole blocks into memory of this thread that begins at a page, and what was asked for from there."""
        first = place - place % self.block
        wanted = place - first + len(piece)
        whole = -(-wanted // self.block) * self.block
        pages: mmap | None = getattr(self._own, "pages", None)
        if pages is None or len(pages) < whole:
            pages = self._own.pages = mmap(-1, whole)
        there = memoryview(pages)
        had = 0
        while had < wanted:
            got = os.preadv(self.descriptor, (there[had:whole],), first + had)
            had += got
            if had < wanted and (not got or got % self.block):
                raise self._cut_short(place + len(piece))
        piece[:] = there[place - first : wanted]

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


PROCESSES, THREADS_EACH = 8, 16
"""at most, and threads of each: together they keep a fast disk at work"""
WORD = 8
"""bytes of a whole number in what is asked and answered"""


def can_share() -> bool:
    """Whether this system has memory that is no file and can be handed to another process."""
    return hasattr(os, "memfd_create")


class Readers:
    """Fill slots of shared memory, ``slots`` of ``rows`` rows each, with rows of one file, in the order of asking."""

    def __init__(self, file: RowFile, slots: int, rows: int, count: int | None = None) -> None:
        self.path, self.rows = file.path, rows
        memory = os.memfd_create("engram-rows")
        os.truncate(memory, slots * rows * file.row_bytes)
        self.slots = np.frombuffer(mmap(memory, 0), np.uint8).reshape(slots, rows, file.row_bytes)
        given = [str(file.path), *map(str, (memory, file.descriptor, file.start, file.row_bytes, file.block))]
        self.processes = [_started(given, (memory, file.descriptor)) for _ in range(count or _processes())]
        os.close(memory)
        weakref.finalize(self, _end, self.processes)
        self._asked: deque[int] = deque()
        """how many processes are to answer each of what is not waited for yet"""

    def ask(self, slot: int, rows: np.ndarray) -> None:
        """Rows by number (n,) into the first places of a slot, shared out among the processes."""
        parts = list(shares(len(rows), len(self.processes)))
        for process, part in zip(self.processes, parts, strict=False):
            head = np.array([slot * self.rows + part.start, part.stop - part.start])
            try:
                _pipe(process.stdin).write(np.concatenate([head, rows[part]]).astype(np.int64).tobytes())
                _pipe(process.stdin).flush()
            except OSError as error:
                raise self._lost(process) from error
        self._asked.append(len(parts))

    def wait(self) -> None:
        """For the first of what was asked."""
        said = [self._answer(process) for process in self.processes[: self._asked.popleft()]]
        for sentence in filter(None, said):
            raise EngramError(sentence)

    def _answer(self, process: subprocess.Popen[bytes]) -> str:
        head = _pipe(process.stdout).read(WORD)
        if len(head) < WORD:
            raise self._lost(process)
        return _pipe(process.stdout).read(int.from_bytes(head, sys.byteorder)).decode()

    def _lost(self, process: subprocess.Popen[bytes]) -> EngramError:
        return EngramError(
            f"a process that reads {self.path} has ended (exit {process.wait()}): start again with --resume"
        )


def _processes() -> int:
    return min(PROCESSES, os.cpu_count() or 1)


def _started(given: list[str], inherited: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """In a group of its own: it ends when this process does, not when someone stops that from the keyboard."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__, *given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=inherited,
        process_group=0,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what it was still to be asked
                _pipe(pipe).close()
        process.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def serve(path: str, *numbers: str) -> None:
    """What each of the processes does, until nobody can ask it any more."""
    memory, descriptor, start, row_bytes, block = map(int, numbers)
    file = RowFile(Path(path), start, row_bytes, descriptor, block)
    places = np.frombuffer(mmap(memory, 0), np.uint8).reshape(-1, row_bytes)
    asked: SimpleQueue[Iterable[Future[Any]]] = SimpleQueue()
    with ThreadPoolExecutor(THREADS_EACH) as pool:
        Thread(target=_answer_all, args=(asked,), daemon=True).start()
        while head := sys.stdin.buffer.read(2 * WORD):
            first, count = np.frombuffer(head, np.int64).tolist()
            rows = np.frombuffer(sys.stdin.buffer.read(count * WORD), np.int64)
            asked.put(file.plan(rows, places[first : first + count], pool))


def _answer_all(asked: SimpleQueue[Iterable[Future[Any]]]) -> None:
    """In the order of asking: nothing, or the sentence of the first part that failed."""
    while True:
        sentences = [str(error) for part in asked.get() if (error := part.exception())]
        said = (sentences or [""])[0].encode()
        try:
            sys.stdout.buffer.write(len(said).to_bytes(WORD, sys.byteorder) + said)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            os._exit(0)  # nobody waits for it any more


if __name__ == "__main__":
    serve(*sys.argv[1:])
