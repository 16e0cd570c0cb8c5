"""A process that ends, as by a kill or a full disk, at the n-th thing it does to files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

OPERATIONS = ("open", "write", "ftruncate", "fsync", "replace", "unlink", "rmdir", "mkdir")
KILLED = 9


def killed_at(place: int, act: Callable[[], object]) -> bool:
    """Run ``act`` in a process of its own that is gone at its operation number ``place``, a write half done; whether it
    was: False where it came to its end before."""
    if not (child := os.fork()):
        status = 1
        try:
            with _counted(place, _end):
                act()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, KILLED), f"operation {place} ended with status {status}"
    return status == KILLED


@contextmanager
def disk_full_at(place: int) -> Iterator[None]:
    """Writes and new files fail from operation number ``place`` on."""
    with _counted(place, _full, lasting=True):
        yield


def _end(name: str, operation: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if name == "write":
        operation(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
    os._exit(KILLED)


def _full(name: str, operation: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if name in ("write", "mkdir", "fsync"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def _counted(place: int, happen: Callable[..., None], lasting: bool = False) -> Iterator[None]:
    originals, count = {name: getattr(os, name) for name in OPERATIONS}, 0

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            nonlocal count
            count += 1
            if count == place or (lasting and count > place):
                happen(name, originals[name], arguments)
            return originals[name](*arguments, **keywords)

        return call

    for name in OPERATIONS:
        setattr(os, name, wrapped(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(os, name, original)
