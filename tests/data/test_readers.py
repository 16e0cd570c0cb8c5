"""Processes that read for another: the rows that were asked for, in order, or one sentence; none is left behind."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from engram.data.readers import Readers, can_share
from engram.data.rows import RowFile
from engram.errors import EngramError

pytestmark = pytest.mark.skipif(not can_share(), reason="this system has no memory that processes can share so")
DATA = np.random.default_rng(0).integers(0, 256, (300, 7), dtype=np.uint8)


@pytest.fixture
def file(tmp_path: Path) -> RowFile:
    (tmp_path / "rows").write_bytes(b"head" + DATA.tobytes())
    return RowFile(tmp_path / "rows", 4, 7)


def test_slots_are_filled_in_the_order_of_asking(file: RowFile) -> None:
    readers, rng = Readers(file, slots=3, rows=50, count=2), np.random.default_rng(1)
    asked = [rng.integers(0, 300, size) for size in (50, 1, 7, 33, 0, 50)]
    for turn in range(0, 6, 3):
        for slot, rows in enumerate(asked[turn : turn + 3]):
            readers.ask(slot, rows)
        for slot, rows in enumerate(asked[turn : turn + 3]):
            readers.wait()
            assert np.array_equal(readers.slots[slot, : len(rows)], DATA[rows])


def test_a_file_cut_short_is_named_and_the_next_is_read(file: RowFile) -> None:
    readers = Readers(file, slots=2, rows=4, count=2)
    with file.path.open("r+b") as stream:
        stream.truncate(4 + 7 * 100 + 3)
    readers.ask(0, np.array([99, 100, 101, 2]))
    readers.ask(1, np.array([1, 2]))
    with pytest.raises(EngramError, match="rows has 707 bytes where 711 are needed: it was cut short"):
        readers.wait()
    readers.wait()
    assert np.array_equal(readers.slots[1, :2], DATA[1:3])


def test_a_process_that_ends_is_told_and_none_outlives_its_owner(file: RowFile) -> None:
    readers = Readers(file, slots=2, rows=4, count=2)
    processes = readers.processes
    processes[1].kill()
    with pytest.raises(
        EngramError, match=r"a process that reads .*rows has ended \(exit -9\): start again with --resu"
    ):
        for _ in range(100):  # the pipe may take a question or two before it is known to be closed
            readers.ask(0, np.arange(4))
            readers.wait()
            time.sleep(0.01)
    del readers
    assert all(process.poll() is not None for process in processes)
