"""Processes that read rows of a file into memory they share with this one.

Threads of this process would take turns with its steps at Python's lock, a moment for each row; these do not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

import numpy as np

from engram.data.rows import RowFile, shares
from engram.errors import EngramError

PROCESSES, THREADS = 8, 16
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
        given = [str(file.path), *map(str, (memory, file.descriptor, file.start, file.row_bytes))]
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
    memory, descriptor, start, row_bytes = map(int, numbers)
    file = RowFile(Path(path), start, row_bytes, descriptor)
    places = np.frombuffer(mmap(memory, 0), np.uint8).reshape(-1, row_bytes)
    asked: SimpleQueue[Iterable[Future[Any]]] = SimpleQueue()
    with ThreadPoolExecutor(THREADS) as pool:
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
        sys.stdout.buffer.write(len(said).to_bytes(WORD, sys.byteorder) + said)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve(*sys.argv[1:])
