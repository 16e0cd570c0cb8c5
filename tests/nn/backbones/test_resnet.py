"""Residual encoders: what a block hands on, and how many layers there are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from engram.nn.backbones.resnet import (
    DropBlock,
    FilmResNet12,
    ResNet12,
    ResNet18,
    WideResNet28,
    _BasicBlock,
    _WideBlock,
)

WIDTHS = (4, 4, 6, 8)


def test_a_block_without_a_body_is_its_shortcut() -> None:
    torch.manual_seed(0)
    block = ResNet12((3, 16, 16), WIDTHS).eval().blocks[0]
    block.body[-1].weight.data.zero_()
    images = torch.randn(2, 3, 16, 16)
    shortcut = torch.nn.functional.leaky_relu(block.shortcut(images), 0.1)
    torch.testing.assert_close(block(images), torch.nn.functional.max_pool2d(shortcut, 2))


def test_dropout_is_for_training_alone() -> None:
    torch.manual_seed(0)
    backbone, images = ResNet12((3, 16, 16), WIDTHS, dropout=0.5), torch.randn(8, 3, 16, 16)
    assert torch.equal(backbone.eval()(images), backbone(images)) and backbone.out_shape == (8,)
    assert 0.2 < (backbone.train()(images) == 0).float().mean() < 0.8


def test_drop_block_is_for_training_alone_and_off_unless_asked() -> None:
    images = torch.randn(4, 3, 32, 32)
    outputs = []
    for settings in ({}, {"drop_block": 0.0, "drop_block_size": 2}, {"drop_block": 0.3}):
        torch.manual_seed(0)
        backbone = ResNet12((3, 32, 32), WIDTHS, **settings)
        outputs.append((backbone(images), torch.rand(1), backbone.eval()(images)))
    first, off, on = outputs
    assert all(torch.equal(a, b) for a, b in zip(first, off, strict=True))  # the random state too
    assert not torch.equal(first[0], on[0]) and not torch.equal(first[1], on[1])
    assert [bool(block.drop.share) for block in backbone.blocks] == [False, False, True, True]
    assert torch.equal(backbone(images), backbone(images)) and not any("drop" in key for key in backbone.state_dict())


def test_only_three_shortcuts_are_layers() -> None:
    backbone = ResNet18((1, 16, 16))
    blocks = [part for part in backbone.modules() if isinstance(part, _BasicBlock)]
    assert [isinstance(block.shortcut, nn.Identity) for block in blocks] == [True, True] + [False, True] * 3
    weighted = [part for block in blocks for part in block.body if isinstance(part, nn.Conv2d)]
    assert len(weighted) + 2 == 18  # with the stem and the classifier that stands behind


def test_a_block_without_a_body_hands_on_what_is_positive() -> None:
    torch.manual_seed(0)
    block, inputs = _BasicBlock(4, 4, 1).eval(), torch.randn(2, 4, 5, 5)
    block.body[-1].weight.data.zero_()
    torch.testing.assert_close(block(inputs), inputs.relu())
    assert _BasicBlock(4, 6, 2)(inputs).shape == (2, 6, 3, 3)


def test_a_block_without_a_body_hands_everything_on() -> None:
    torch.manual_seed(0)
    block, inputs = _WideBlock(4, 4, 1).eval(), torch.randn(2, 4, 5, 5)
    block.conv2.weight.data.zero_()
    assert torch.equal(block(inputs), inputs)  # nothing is cut off: pre-activation


def test_the_shortcut_sees_what_is_normalised() -> None:
    torch.manual_seed(0)
    block, inputs = _WideBlock(4, 6, 2).eval(), torch.randn(2, 4, 6, 6)
    block.conv2.weight.data.zero_()
    torch.testing.assert_close(block(inputs), block.shortcut(torch.relu(block.norm1(inputs))))


def test_layers_and_sizes() -> None:
    backbone = WideResNet28((1, 16, 16), factor=1)
    three = [part for part in backbone.modules() if isinstance(part, nn.Conv2d) and part.kernel_size == (3, 3)]
    assert len(three) + 3 == 28  # the paper counts the three shortcuts that are layers
    assert backbone.blocks(torch.zeros(1, 1, 16, 16)).shape == (1, 64, 4, 4) and backbone.out_shape == (64,)


FILM_WIDTHS = (4, 4, 8, 8)


@pytest.fixture
def backbone() -> FilmResNet12:
    torch.manual_seed(0)
    return FilmResNet12((1, 20, 20), FILM_WIDTHS).eval()


def test_zeros_change_nothing(backbone: FilmResNet12) -> None:
    images = torch.randn(3, 1, 20, 20)
    film = torch.zeros(3, 2 * sum(backbone.film_widths))
    assert backbone.film_widths == (4,) * 6 + (8,) * 6
    torch.testing.assert_close(backbone(images, film), backbone(images))


def test_conditions_reach_their_own_image_alone(backbone: FilmResNet12) -> None:
    images, film = torch.randn(3, 1, 20, 20), torch.zeros(3, 2 * sum(backbone.film_widths))
    film[1] = 0.5
    changed = (backbone(images, film) - backbone(images)).abs().amax(1)
    assert changed[1] > 1e-3 and changed[[0, 2]].max() < 1e-6


def test_gamma_scales_and_beta_shifts_a_layer(backbone: FilmResNet12) -> None:
    """In the last layer of the last block gamma = -1 leaves beta alone beside the shortcut."""
    block, inputs = backbone.blocks[3], torch.randn(2, 8, 3, 3)
    film = [torch.zeros(2, 8) for _ in range(6)]
    film[4], film[5] = torch.full((2, 8), -1.0), torch.full((2, 8), 0.3)
    torch.testing.assert_close(block(inputs, film), torch.nn.functional.silu(0.3 + block.shortcut(inputs)))


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
