"""Rows of a file: those that were asked for, in any order, whole or one sentence."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from engram.data.rows import ALONE, THREADS, RowFile, shares
from engram.errors import EngramError

DATA = np.random.default_rng(0).integers(0, 256, (300, 7), dtype=np.uint8)


@pytest.fixture
def file(tmp_path: Path) -> RowFile:
    (tmp_path / "rows").write_bytes(b"head" + DATA.tobytes())
    return RowFile(tmp_path / "rows", 4, 7)


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


def test_a_disk_that_fails_is_one_sentence(file: RowFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.preadv", fail)
    with pytest.raises(EngramError, match="rows cannot be read .Input/output error.: check its disk"):
        file.read_all(np.arange(2 * ALONE), np.empty((2 * ALONE, 7), np.uint8))
