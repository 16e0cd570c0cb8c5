"""Files that are whole or not there, and one writer at a time."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from killing import disk_full_at

from engram.classifier import disk
from engram.classifier.disk import Turn
from engram.errors import EngramError


def test_what_an_interrupted_write_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"whole torn and long")
    disk.append(tmp_path / "a", 5, b" more")
    assert (tmp_path / "a").read_bytes() == b"whole more"
    with pytest.raises(OSError, match="No space left"), disk_full_at(1):
        disk.append(tmp_path / "a", 10, b" and more")
    assert (tmp_path / "a").read_bytes() == b"whole more"
    with pytest.raises(OSError, match="No space left"), disk_full_at(1):
        disk.put(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"whole more" and len(list(tmp_path.iterdir())) == 1
    disk.put(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"


def test_threads_and_processes_write_in_turn(tmp_path: Path) -> None:
    count = tmp_path / "model" / "count"

    def one_more(_: int) -> None:
        with disk.one_writer(count.parent), disk.one_writer(count.parent):  # whoever has it may take it again
            number = int(count.read_text()) if count.exists() else 0
            time.sleep(0.01)
            count.write_text(str(number + 1))

    if not (child := os.fork()):
        list(map(one_more, range(10)))
        os._exit(0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one_more, range(10)))
    assert os.waitpid(child, 0)[1] == 0 and count.read_text() == "20"


def test_a_folder_in_which_nothing_was_written_does_not_stay(tmp_path: Path) -> None:
    with disk.one_writer(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(EngramError, match="file could not be written"), disk.one_writer(tmp_path / "file"):
        pass


def test_one_thread_at_a_time_and_none_in_a_forked_process() -> None:
    turn, count = Turn(), 0

    def one_more(_: int) -> None:
        nonlocal count
        with turn, turn:
            before = count
            for _ in range(100):
                pass
            count = before + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one_more, range(400)))
    assert count == 400
    with ThreadPoolExecutor(1) as pool:
        with turn:
            assert pool.submit(lambda: turn._lock.acquire(blocking=False)).result() is False
            if not (child := os.fork()):
                with turn:
                    os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
