"""Where uploads lie: a folder of this page, which its user alone can read and which goes when the page goes.

Before a request reaches the page, the server refuses a foreign name, too many bytes, and a full folder.
"""

from __future__ import annotations

import atexit
import ipaddress
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
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


MOST_BYTES = 200 * 2**20
"""of one request that uploads pictures"""
MOST_KEPT = 2 * 2**30
"""of uploads that lie on the disk at once, of all visitors"""
Scope = MutableMapping[str, Any]


class Guard:
    """ASGI middleware. A page of another site may point its own name at this computer and so be let in by a browser
    (DNS rebinding): only numbers, this computer's own names and the one it was told to listen on are answered."""

    def __init__(self, app: Callable[..., Awaitable[None]], host: str) -> None:
        self.app = app
        self.names = {"localhost", host.lower(), socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Callable[..., Any], send: Callable[..., Awaitable[None]]) -> None:
        refused = self.refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refused is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refused[1]})
        else:
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": refused[0], "headers": headers})
            await send({"type": "http.response.body", "body": refused[1].encode()})

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and sentence; None for what may pass."""
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._known(headers.get(b"host", "")):
            return 400, "this page does not answer to that name: open it by the address that engram demo prints"
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"].rstrip("/").endswith("/upload"):
            length = headers.get(b"content-length", "")
            if not length.isdecimal():
                return 411, "the upload does not say how long it is"
            if int(length) > MOST_BYTES:
                return 413, f"{length} bytes are too many at once, where {MOST_BYTES} are taken: send fewer pictures"
            if size() + int(length) > MOST_KEPT:
                return 507, "the page holds as many pictures as it can: try again in some minutes"
        return None

    def _known(self, host: str) -> bool:
        """Whether a Host header names this computer, with or without a port."""
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if name.lower() in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
