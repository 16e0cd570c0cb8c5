"""Small labels beside points so that none covers a point or another label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

POINT = 5.0
"""half the side of the square a point takes, in pixels"""
Box = tuple[float, float, float, float]
"""left, bottom, right, top"""


def place_labels(points: np.ndarray, sizes: Sequence[tuple[float, float]]) -> np.ndarray:
    """Centre of each label, near its point: the nearest place that is free; where none is, the farthest that was tried.

    Shapes: points (n, 2) and sizes (width, height) in pixels -> (n, 2)
    """
    taken: list[Box] = [_box(x, y, 2 * POINT, 2 * POINT) for x, y in points]
    centres = np.zeros_like(points, dtype=float)
    for number, ((x, y), (width, height)) in enumerate(zip(points, sizes, strict=True)):
        for dx, dy in _places(width, height):
            box = _box(x + dx, y + dy, width, height)
            if not any(_overlap(box, other) for other in taken):
                break
        taken.append(box)
        centres[number] = x + dx, y + dy
    return centres


def _places(width: float, height: float) -> Iterator[tuple[float, float]]:
    """Offsets around a point, nearest first; right and left before above and below."""
    for gap in range(1, 42, 4):
        reach_x, reach_y = POINT + gap + width / 2, POINT + gap + height / 2
        for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
            yield x * reach_x, y * reach_y


def _box(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
