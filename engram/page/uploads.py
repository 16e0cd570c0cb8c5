"""Where uploads lie: a folder of this page, which its user alone can read and which goes when the page goes."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

if sys.platform != "win32":
    import fcntl

PREFIX = "engram-page-"
_sent: dict[str, set[Path]] = {}
"""uploads of each visitor"""
_noting = Lock()


@cache
def folder() -> Path:
    """Made once for a process, which holds a lock on it as long as it runs; what killed pages left is removed first."""
    remove_left_behind()
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))  # for the user alone: mode 700
        if _locked(path) is not None:
            atexit.register(shutil.rmtree, path, ignore_errors=True)
            return path


def remove_left_behind() -> None:
    """Folders of pages of this user that no process holds any more."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            if path.is_symlink() or (sys.platform != "win32" and path.stat().st_uid != os.getuid()):
                continue
            if (descriptor := _locked(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                if descriptor >= 0:
                    os.close(descriptor)


def pictures() -> Path:
    """What visitors send lies below this."""
    path = folder() / "pictures"
    path.mkdir(exist_ok=True)
    return path


def came(visitor: str, values: Iterable[Any]) -> None:
    """Note the uploads among the values that a visitor's page sends."""
    files = [value for given in values if isinstance(given, list) for value in given if isinstance(value, str)]
    with _noting:
        _sent.setdefault(visitor, set()).update(path for path in map(Path, files) if pictures() in path.parents)


def left(visitor: str) -> None:
    """Remove the uploads of a visitor who has left; the same file lies there once, so others' stay."""
    with _noting:
        gone = _sent.pop(visitor, set()).difference(*_sent.values())
        for path in gone:
            path.unlink(missing_ok=True)
            with suppress(OSError):
                path.parent.rmdir()


def size() -> int:
    """Bytes of all uploads."""
    total = 0
    for place, _, names in os.walk(folder()):
        for name in names:
            with suppress(OSError):  # it may be removed at any time
                total += os.stat(os.path.join(place, name)).st_size
    return total


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock; None where another holds it or the folder is gone."""
    if sys.platform == "win32":
        return -1
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(path), os.fstat(descriptor)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
