"""Labels beside points: none covers a point or another label."""

from __future__ import annotations

import numpy as np
import pytest

from engram.report.labels import POINT, place_labels


@pytest.mark.parametrize("seed", range(6))
def test_no_label_covers_another_or_a_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = np.concatenate([rng.uniform(0, 350, (12, 2)), 175 + rng.normal(0, 25, (12, 2))])
    sizes = [(15.0, 10.0)] * len(points)
    centres = place_labels(points, sizes)
    boxes = [(c, (7.5, 5.0)) for c in centres] + [(p, (POINT, POINT)) for p in points]
    for n, (centre, half) in enumerate(boxes[: len(points)]):
        for m, (other, other_half) in enumerate(boxes):
            if n != m:
                apart = np.abs(centre - other) >= np.add(half, other_half) - 1e-9
                assert apart.any(), (seed, n, m)
    assert np.abs(centres - points).max() < 70
