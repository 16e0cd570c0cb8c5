"""A process that ends, or a disk that fails, at the n-th thing done to files; and what must be left then."""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from engram.errors import EngramError

OPERATIONS = ("open", "write", "ftruncate", "fsync", "replace", "link", "unlink", "rmdir", "mkdir")
KILLED, REFUSED = 9, 2
GROWING = ("create", "write", "fsync", "link", "mkdir")
"""what a full disk does not do; one that may only be read does nothing but open"""


def killed_at(place: int, act: Callable[[], object]) -> bool:
    """Run ``act`` in a process of its own that is gone at its operation number ``place``, a write half done; whether it
    was: False where it came to its end before."""
    status = _waited(_forked(act, lambda: _counted(place, _end)))
    assert status in (0, KILLED), f"operation {place} ended with status {status}"
    return status == KILLED


def killed_after(seconds: float, act: Callable[[], object]) -> bool:
    """The same, gone at a moment of the clock, wherever it is then."""
    child = _forked(act)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    status = _waited(child)
    assert status in (0, -KILLED), f"{seconds} seconds ended with status {status}"
    return status == -KILLED


def at_once(*acts: Callable[[], object]) -> list[int]:
    """The exit statuses of processes that run side by side: 0, or 2 for one sentence."""
    return [_waited(child) for child in [_forked(act) for act in acts]]


@contextmanager
def disk_full_at(place: int, number: int = errno.ENOSPC) -> Iterator[list[str]]:
    """Writes and new files fail from operation number ``place`` on; what failed is in the list."""

    def fail(name: str, *_: object) -> None:
        if name in GROWING or (number == errno.EROFS and name != "open"):
            raise OSError(number, os.strerror(number))

    with _counted(place, fail, lasting=True) as happened:
        yield happened


@contextmanager
def vanishing_at(place: int, folder: Path) -> Iterator[list[str]]:
    """The folder is gone at operation number ``place``, as by another program."""

    def vanish(*_: object) -> None:
        with _uncounted():
            shutil.rmtree(folder, ignore_errors=True)

    with _counted(place, vanish) as happened:
        yield happened


@dataclass(frozen=True)
class Task:
    """Something that is written: how a folder is before, what is done to it, and all that counts of what it holds."""

    start: Callable[[Path], object]
    act: Callable[[Path], object]
    seen: Callable[[Path], object]
    whole: bool = True
    """what a kill leaves is as before or as after; else it may be anything that can be gone on with"""

    def begin(self, folder: Path) -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        self.start(folder)
        return folder

    def finished(self, root: Path) -> tuple[object, object, float]:
        """What is seen before and after, and the seconds between."""
        folder = self.begin(root / "whole")
        before, began = self.seen(folder), time.monotonic()
        self.act(folder)
        return before, self.seen(folder), time.monotonic() - began


Kill = Callable[[Callable[[], object]], bool]


def check_kills(
    root: Path, task: Task, places: Callable[[int], bool], moments: int, seed: int = 1
) -> tuple[int, list[str]]:
    """Kill a task at every operation that ``places`` takes, then at random ``moments``; how many kills there were, and
    a sentence for each after which something was lost.

    Done again, it ends where it would have ended, bit for bit.
    """
    before, after, seconds = task.finished(root)
    told: list[str] = []

    def once(name: str, kill: Kill) -> bool:
        folder = task.begin(root / name)
        killed = kill(lambda: task.act(folder))
        with _told(told, name):
            assert not task.whole or task.seen(folder) in (before, after), "neither as before nor as after"
            task.act(folder)
            assert task.seen(folder) == after, "done again, it ends elsewhere"
        shutil.rmtree(folder, ignore_errors=True)
        return killed

    kills = 0
    for place in filter(places, count(1)):
        if not once(f"operation {place}", partial(killed_at, place)):
            break
        kills += 1
    dice, moved = random.Random(seed), 0
    while moved < moments:  # one that came to its end before is none
        moved += once(f"moment {moved}", partial(killed_after, dice.uniform(0, 1.2 * seconds)))
    return kills + moved, told


@contextmanager
def _told(told: list[str], name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        told.append(f"{name}: {error!r}")


def check_failures(root: Path, task: Task, places: Callable[[int], bool]) -> tuple[int, list[str]]:
    """A full disk, one that may only be read, a folder that vanishes, at operations that ``places`` takes, and two at
    once: one sentence or none, and done again it ends as ever. How many were tried, and what went wrong."""
    _, after, _ = task.finished(root)
    tried, told = 0, list[str]()
    failures: dict[str, Callable[[int, Path], AbstractContextManager[list[str]]]] = {
        "full": lambda place, folder: disk_full_at(place),
        "read-only": lambda place, folder: disk_full_at(place, errno.EROFS),
        "vanished": vanishing_at,
    }
    for name, failing in failures.items():
        for place in filter(places, count(1)):
            folder = task.begin(root / f"{name} {place}")
            with _told(told, f"{name} at operation {place}"):
                try:
                    with failing(place, folder) as happened:
                        task.act(folder)
                except EngramError as error:
                    assert "\n" not in str(error)
                if name == "vanished":
                    task.begin(folder)
                task.act(folder)
                assert task.seen(folder) == after, "done again, it ends elsewhere"
            shutil.rmtree(folder, ignore_errors=True)
            if not happened:
                break
            tried += 1
    with _told(told, "two at once"):
        two = task.begin(root / "two")
        assert set(at_once(*[partial(task.act, two)] * 2)) <= {0, REFUSED}, "one ended by neither 0 nor a sentence"
        task.act(two)
        assert task.seen(two) == after, "done again, it ends elsewhere"
    return tried + 1, told


def _forked(act: Callable[[], object], around: Callable[[], Any] | None = None) -> int:
    if child := os.fork():
        return child
    status = 1
    try:
        with around() if around else _uncounted():
            act()
        status = 0
    except EngramError:
        status = REFUSED
    finally:
        os._exit(status)


def _waited(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _end(name: str, operation: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if name == "write":
        *target, data = arguments
        operation(*target, data[: len(data) // 2] if isinstance(data, str) else bytes(data)[: len(bytes(data)) // 2])
        if not target:  # of a file object, which may keep it to itself
            operation.__self__.flush()  # type: ignore[attr-defined]
    os._exit(KILLED)


_ORIGINALS = {name: getattr(os, name) for name in OPERATIONS}
_OPEN = io.open


class _File:
    """A file to write whose every write is an operation."""

    def __init__(self, file: Any, counted: Callable[..., Any]) -> None:
        self._file, self._counted = file, counted

    def write(self, data: Any) -> Any:
        return self._counted("write", self._file.write, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextmanager
def _counted(place: int, happen: Callable[..., None], lasting: bool = False) -> Iterator[list[str]]:
    done, happened = 0, list[str]()

    def call(name: str, operation: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        nonlocal done
        done += 1
        if done == place or (lasting and done > place):
            happened.append(name)
            happen(name, operation, arguments)
        return operation(*arguments, **keywords)

    def opened(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
        if not set(mode) & set("wax+"):
            return _OPEN(file, mode, *arguments, **keywords)
        return _File(call("create", _OPEN, file, mode, *arguments, **keywords), call)

    with _set({name: partial(call, name, operation) for name, operation in _ORIGINALS.items()}, opened):
        yield happened


@contextmanager
def _uncounted() -> Iterator[None]:
    with _set(_ORIGINALS, _OPEN):
        yield


@contextmanager
def _set(operations: dict[str, Callable[..., Any]], opener: Callable[..., Any]) -> Iterator[None]:
    before, opened = {name: getattr(os, name) for name in operations}, builtins.open
    for name, operation in operations.items():
        setattr(os, name, operation)
    builtins.open = io.open = opener  # type: ignore[assignment]
    try:
        yield
    finally:
        for name, operation in before.items():
            setattr(os, name, operation)
        builtins.open = io.open = opened  # type: ignore[assignment]
