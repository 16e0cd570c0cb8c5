"""One thread and one writer at a time, and files that are whole or not there: what a model's folder is written with."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from engram.errors import EngramError
from engram.files import remove_own

if sys.platform != "win32":
    import fcntl


class Turn:
    """A lock that a thread may take again while it has it; a forked process, which has one thread, finds it open."""

    def __init__(self) -> None:
        self._open()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._open)

    def _open(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._lock.release()


WRITING = Turn()
_held: set[Path] = set()
"""folders that the thread whose turn it is has locked"""


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """One thread of one process at a time changes a folder, which is made where it is not there; others wait. The lock
    is on the folder itself and goes with the process, however that ends."""
    place = folder.resolve()
    with WRITING:
        if place in _held:
            yield
            return
        new = not folder.exists()
        try:
            descriptor = _locked(folder)
        except OSError as error:
            raise unwritten(folder, error) from error
        _held.add(place)
        try:
            yield
        finally:
            _held.discard(place)
            if new:
                with suppress(OSError):
                    folder.rmdir()  # where nothing was written; a folder that holds something stays
            if descriptor is not None:
                os.close(descriptor)


def _locked(folder: Path) -> int | None:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        if sys.platform == "win32":
            return None
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that writes to {folder}", file=sys.stderr, flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(OSError):
            if os.path.samestat(os.stat(folder), os.fstat(descriptor)):
                return descriptor
        os.close(descriptor)  # it was taken away while we waited


def unwritten(path: Path, error: OSError) -> EngramError:
    return EngramError(f"{path} could not be written ({error.strerror or error}): nothing was changed")


def append(path: Path, start: int, data: bytes | memoryview) -> None:
    """Write ``data`` at ``start``, in place of whatever an interrupted write has left there, and wait for the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    try:
        os.ftruncate(descriptor, start)
        os.lseek(descriptor, start, os.SEEK_SET)
        try:
            rest = memoryview(data)
            while len(rest):
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, start)
            raise
    finally:
        os.close(descriptor)


def put(path: Path, data: bytes) -> None:
    """Write a whole file beside its place and move it there: it is the old one or the new one."""
    beside = path.with_name(f".{path.name}.new")
    try:
        append(beside, 0, data)
        os.replace(beside, path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    settle(path.parent)


def settle(folder: Path) -> None:
    """Wait until names of files are on the disk."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path: Path, own: Iterable[str] = ()) -> None:
    """A file of ours that nothing names any more, or the files ``own`` of such a folder: what another put there stays.
    What cannot be removed does no harm."""
    with suppress(OSError):
        remove_own(path, own) if path.is_dir() else path.unlink()
