"""Three classes of pictures of one colour each, as a reader of files gives them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engram.data.formats.form import SplitSource

COUNTS = (3, 5, 4)


def source(counts: tuple[int, ...] = COUNTS, given: tuple[int, ...] = COUNTS, group_size: int = 1) -> SplitSource:
    def read(c: int) -> Iterator[np.ndarray]:
        for k in range(given[c]):
            yield np.full((3, 4, 4), 10 * c + k, np.uint8)

    return SplitSource(tuple("abc"), counts, read, (3, 4, 4), group_size)
