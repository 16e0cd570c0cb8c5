"""Arrays that stay in their file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engram.data.formats.lazy_arrays import LazyArray, OpenFile, Span
from engram.errors import EngramError

ARRAY = np.arange(24, dtype=">f4").reshape(4, 2, 3)


@pytest.fixture
def file(tmp_path: Path) -> OpenFile:
    (tmp_path / "a").write_bytes(b"head" + ARRAY.tobytes())
    with (tmp_path / "a").open("rb") as stream:
        return OpenFile(stream)


def test_rows_and_the_whole(file: OpenFile) -> None:
    lazy = LazyArray(file, 4, ARRAY.shape, ARRAY.dtype)
    assert len(lazy) == 4 and lazy.ndim == 3 and np.array_equal(lazy[2], ARRAY[2])
    assert np.array_equal(np.asarray(lazy), ARRAY) and np.asarray(lazy, dtype=np.uint8).dtype == np.uint8
    assert [row.sum() for row in lazy] == [row.sum() for row in ARRAY]
    for row in (-1, 4):
        with pytest.raises(IndexError):
            lazy[row]


def test_what_goes_beyond_its_file_is_refused(file: OpenFile, tmp_path: Path) -> None:
    assert Span(file, 0, 4).read() == b"head"
    with pytest.raises(ValueError, match="ends too early"):
        LazyArray(file, 5, ARRAY.shape, ARRAY.dtype)
    with (tmp_path / "a").open("r+b") as stream:
        stream.truncate(10)
    with pytest.raises(EngramError, match="cut short while it was read"):
        Span(file, 0, 50).read()
