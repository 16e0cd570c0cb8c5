"""Squares that are zeroed while training: how many, which, and what is left."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engram.nn.backbones.drop_block import DropBlock


@pytest.mark.parametrize(("side", "size", "share"), [(10, 5, 0.1), (12, 3, 0.2), (5, 5, 0.3), (2, 5, 0.3)])
def test_drop_block_zeroes_about_its_share_and_keeps_the_mean(side: int, size: int, share: float) -> None:
    torch.manual_seed(0)
    dropped = DropBlock(share, size)(torch.ones(32, 64, side, side))
    zeros = float((dropped == 0).float().mean())
    assert 0.85 * share < zeros < 1.05 * share  # squares overlap: a little less
    torch.testing.assert_close(dropped.mean(), torch.tensor(1.0), atol=1e-5, rtol=0)
    assert len(dropped.unique()) == 2


@pytest.mark.parametrize(("shape", "size"), [((3, 4, 9, 7), 3), ((3, 4, 4, 6), 5)])
def test_drop_block_agrees_with_squares_drawn_one_by_one(shape: tuple[int, ...], size: int) -> None:
    torch.manual_seed(3)
    images = torch.randn(shape)
    torch.manual_seed(4)
    found = DropBlock(0.4, size)(images)
    n, channels, h, w = shape
    side = min(size, h, w)
    rows, columns = h - side + 1, w - side + 1
    torch.manual_seed(4)
    starts = torch.empty(n, channels, rows, columns, memory_format=torch.channels_last)
    starts = starts.bernoulli_(0.4 / side**2 * h * w / (rows * columns)).numpy()
    kept = np.ones(shape, np.float32)
    for i, c, row, column in zip(*np.nonzero(starts), strict=True):
        kept[i, c, row : row + side, column : column + side] = 0
    assert 0 < kept.mean() < 1
    np.testing.assert_allclose(found.numpy(), images.numpy() * kept * kept.size / kept.sum(), rtol=1e-6)


def test_drop_block_keeps_layout_and_precision_and_stands_all_zeroed() -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 8, 6, 6).to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    dropped = DropBlock(0.3, 3)(images)
    assert dropped.dtype == torch.bfloat16 and dropped.is_contiguous(memory_format=torch.channels_last)
    assert 0 < (dropped == 0).float().mean() < 0.6
    assert any(DropBlock(0.99, 5)(torch.ones(1, 1, 2, 2)).eq(0).all() for _ in range(3))  # and no division by zero
