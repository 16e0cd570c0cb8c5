"""Rows of a file: those that were asked for, in any order, whole or one sentence; also by processes that read for
another, of which none is left behind."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engram.data import rows as data_rows
from engram.data.rows import ALONE, THREADS, Readers, RowFile, can_share, shares
from engram.errors import EngramError

SHARING = pytest.mark.skipif(not can_share(), reason="this system has no memory that processes can share so")
DATA = np.random.default_rng(0).integers(0, 256, (300, 7), dtype=np.uint8)


@pytest.fixture(params=["through the cache", "past it"])
def file(tmp_path: Path, request: pytest.FixtureRequest) -> RowFile:
    (tmp_path / "rows").write_bytes(b"head" + DATA.tobytes())
    file = RowFile(tmp_path / "rows", 4, 7)
    if request.param == "through the cache":
        return file
    if not (straight := file.past_cache()).block:
        pytest.skip("this disk gives nothing past the system's cache")
    return straight


@pytest.mark.parametrize(
    "rows", [[5], [0, 299, 7, 7, 8, 9, 9, 10], list(range(300)), list(range(299, -1, -1)), [3, 4] * ALONE]
)
def test_rows_in_any_order(file: RowFile, rows: list[int]) -> None:
    asked, out = np.array(rows), np.empty((len(rows), 7), np.uint8)
    for read in (file.read, file.read_all):
        out[:] = 0
        read(asked, out)
        assert np.array_equal(out, DATA[rows])
    out[:] = 0
    with ThreadPoolExecutor(2) as pool:
        parts = file.plan(asked, out, pool)
    assert all(part.done() for part in parts) and np.array_equal(out, DATA[rows])


def test_no_rows_are_no_work(file: RowFile) -> None:
    file.read_all(np.empty(0, np.int64), np.empty((0, 7), np.uint8))
    assert list(shares(0)) == [] and len(list(shares(1000, THREADS))) == THREADS


def test_a_part_and_a_copy_in_another_process_are_files_of_their_own(file: RowFile) -> None:
    out, part = np.empty((1, 7), np.uint8), file.after(10)
    for same in (part, pickle.loads(pickle.dumps(part))):
        same.read(np.array([2]), out)
        assert np.array_equal(out[0], DATA[12])


def test_a_file_that_was_cut_short_is_named_with_both_sizes(file: RowFile) -> None:
    with file.path.open("r+b") as stream:
        stream.truncate(4 + 7 * 100 + 3)
    out = np.empty((2, 7), np.uint8)
    file.read(np.array([98, 99]), out)
    with pytest.raises(EngramError, match="rows has 707 bytes where 711 are needed: it was cut short; delete its"):
        file.read(np.array([99, 100]), out)


def test_where_no_disk_reads_past_the_cache_the_file_stays_as_it_is(file: RowFile, monkeypatch: Any) -> None:
    monkeypatch.setattr(data_rows, "BLOCKS", (3,))  # no disk has blocks of three bytes
    assert file.past_cache() is file


def test_a_disk_that_fails_is_one_sentence(file: RowFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.preadv", fail)
    with pytest.raises(EngramError, match="rows cannot be read .Input/output error.: check its disk"):
        file.read_all(np.arange(2 * ALONE), np.empty((2 * ALONE, 7), np.uint8))


@SHARING
def test_slots_are_filled_in_the_order_of_asking(file: RowFile) -> None:
    readers, rng = Readers(file, slots=3, rows=50, count=2), np.random.default_rng(1)
    asked = [rng.integers(0, 300, size) for size in (50, 1, 7, 33, 0, 50)]
    for turn in range(0, 6, 3):
        for slot, rows in enumerate(asked[turn : turn + 3]):
            readers.ask(slot, rows)
        for slot, rows in enumerate(asked[turn : turn + 3]):
            readers.wait()
            assert np.array_equal(readers.slots[slot, : len(rows)], DATA[rows])


@SHARING
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


@SHARING
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


@SHARING
def test_a_reader_nobody_waits_for_any_more_ends_without_a_word(
    file: RowFile, capfd: pytest.CaptureFixture[str]
) -> None:
    readers = Readers(file, slots=2, rows=4, count=1)
    (process,) = readers.processes
    assert process.stdout is not None
    process.stdout.close()
    readers.ask(0, np.arange(4))
    assert process.wait(timeout=20) == 0 and capfd.readouterr().err == ""
