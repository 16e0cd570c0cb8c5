"""The folder of uploads: private, one for each page, and gone after it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from engram.page import uploads
from engram.page.uploads import MOST_BYTES, Guard

PAGE = """
import signal, sys, time
from engram.page import uploads
(uploads.folder() / "picture.png").write_text("private")
signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as the page does
print(uploads.folder(), flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_uploads_are_private_and_gone_at_the_latest_with_the_next_start(how: signal.Signals, place: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PAGE], stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        folder = Path(page.stdout.readline().strip())
        assert folder.parent == place and folder.stat().st_mode & 0o777 == 0o700
        uploads.remove_left_behind()
        assert (folder / "picture.png").exists(), "a page that runs keeps its own"
        page.send_signal(how)
    uploads.remove_left_behind()
    assert not list(place.iterdir())


def test_nothing_else_is_removed(place: Path) -> None:
    (place / "mine").mkdir()
    (place / f"{uploads.PREFIX}link").symlink_to(place / "mine")
    (place / "mine" / "dear.txt").write_text("mine")
    (place / f"{uploads.PREFIX}file").write_text("no folder")
    uploads.remove_left_behind()
    assert sorted(os.listdir(place)) == sorted(["mine", f"{uploads.PREFIX}link", f"{uploads.PREFIX}file"])
    assert (place / "mine" / "dear.txt").read_text() == "mine"


def test_pictures_go_when_their_visitor_leaves_and_those_of_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    uploads.folder.cache_clear()
    monkeypatch.setattr(uploads, "_sent", {})
    files = [uploads.pictures() / name / "a.png" for name in ("one", "two", "shared")]
    outside = uploads.folder() / "example.png"
    for file in (*files, outside):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"12345")
    uploads.came("a", ["photographs", None, [str(files[0]), str(files[2]), str(outside), 7]])
    uploads.came("b", [[str(files[1]), str(files[2])]])
    assert uploads.size() == 20
    uploads.left("a")
    uploads.left("a")
    assert [file.exists() for file in (*files, outside)] == [False, True, True, True] and uploads.size() == 15
    uploads.left("b")
    assert not list(uploads.pictures().iterdir()) and outside.exists()
    uploads.folder.cache_clear()


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
    monkeypatch.setattr(uploads, "size", lambda: 5)
    upload = {"path": "/gradio_api/upload", "method": "POST"}
    assert answered(request(**upload, content_length=str(MOST_BYTES))) == [{"type": "passed"}]
    assert answered(request(**upload, content_length=str(MOST_BYTES + 1)))[0]["status"] == 413
    assert answered(request(**upload))[0]["status"] == 411
    monkeypatch.setattr(uploads, "MOST_KEPT", 10)
    assert answered(request(**upload, content_length="6"))[0]["status"] == 507
