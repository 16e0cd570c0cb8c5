"""Requests that never reach the page."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engram.page import guard
from engram.page.guard import MOST_BYTES, Guard


def request(host: str = "127.0.0.1:7860", path: str = "/", method: str = "GET", **headers: str) -> dict[str, Any]:
    given = {"host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    return {"type": "http", "method": method, "path": path, "headers": pairs}


async def passed(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "passed"})


def answered(scope: dict[str, Any]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(Guard(passed, "bench.example")(scope, None, send))  # type: ignore[arg-type]
    return sent


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost", "[::1]:80", "192.168.1.7:7860", "Bench.example:1"])
def test_this_computer_by_number_or_name(host: str) -> None:
    assert answered(request(host)) == [{"type": "passed"}]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:7860", "", "localhost.evil.example"])
def test_a_foreign_name_is_refused(host: str) -> None:
    start, body = answered(request(host))
    assert start["status"] == 400 and b"does not answer to that name" in body["body"]
    assert answered({**request(host), "type": "websocket"})[0]["code"] == 1008


def test_uploads_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard.uploads, "size", lambda: 5)
    upload = {"path": "/gradio_api/upload", "method": "POST"}
    assert answered(request(**upload, content_length=str(MOST_BYTES))) == [{"type": "passed"}]
    assert answered(request(**upload, content_length=str(MOST_BYTES + 1)))[0]["status"] == 413
    assert answered(request(**upload))[0]["status"] == 411
    monkeypatch.setattr(guard, "MOST_KEPT", 10)
    assert answered(request(**upload, content_length="6"))[0]["status"] == 507
