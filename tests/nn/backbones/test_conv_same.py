"""Pooling that keeps the odd row and column."""

from __future__ import annotations

import torch

from engram.nn.backbones.conv import ConvBlocks
from engram.nn.backbones.conv_same import ConvSame


def test_it_differs_from_plain_blocks_only_where_a_size_is_odd() -> None:
    torch.manual_seed(0)
    plain, same = ConvBlocks((1, 32, 32), 5).eval(), ConvSame((1, 32, 32), 5).eval()
    same.load_state_dict(plain.state_dict())
    images = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(same(images), plain(images))
    assert ConvSame((1, 28, 28), 5).out_shape == (5 * 2 * 2,)  # 28 - 14 - 7 - 4 - 2
    assert ConvBlocks((1, 28, 28), 5).out_shape == (5,)


def test_the_odd_column_is_seen() -> None:
    torch.manual_seed(0)
    backbone, images = ConvSame((1, 17, 17), 4).eval(), torch.zeros(2, 1, 17, 17)
    images[1, :, :, 16] = 5.0
    first, second = backbone(images)
    assert not torch.equal(first, second)
