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
