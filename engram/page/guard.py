"""What the server answers before a request reaches the page: a foreign name, too many bytes, and a full folder."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from engram.page import uploads

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
            if uploads.size() + int(length) > MOST_KEPT:
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
