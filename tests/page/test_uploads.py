"""The folder of uploads: private, one for each page, and gone after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from engram.page import uploads

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
