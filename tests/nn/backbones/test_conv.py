"""Four plain blocks: pooling before the activation, pixels that are normalised on the way, and no encoder at all."""

from __future__ import annotations

import pytest
import torch

from engram.nn.backbones import build_backbone
from engram.nn.backbones.conv import Conv4, ConvBlock, ConvBlocks, Flatten


def test_conv4_can_end_in_96() -> None:
    assert build_backbone("conv4", (3, 84, 84), {"out_features": 96}).out_shape == (96,)


@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_pooling_may_stand_before_the_activation(slope: float) -> None:
    torch.manual_seed(0)
    block, images = ConvBlock(2, 5, slope, 1, False).eval(), torch.randn(3, 2, 8, 8)
    with torch.no_grad():
        late = torch.nn.functional.max_pool2d(torch.nn.functional.leaky_relu(block[1](block[0](images)), slope), 2)
        torch.testing.assert_close(block(images), late)


@pytest.mark.parametrize("training", [True, False])
def test_pixels_are_normalised_on_the_way(training: bool) -> None:
    torch.manual_seed(0)
    backbone = Conv4((3, 28, 28), 8, dropout=(0.0, 0.0)).train(training)
    pixels = torch.randint(0, 256, (4, 3, 28, 28), dtype=torch.uint8)
    scale, shift = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1) / 255, torch.tensor([-1.0, 0.0, 1.0]).view(3, 1, 1)
    torch.testing.assert_close(backbone.from_pixels(pixels, scale, shift), backbone(pixels * scale + shift))


def test_dropout_stands_after_every_block() -> None:
    plain, dropped = ConvBlocks((1, 16, 16), 4), ConvBlocks((1, 16, 16), 4, dropout=0.1)
    assert [len(block) for block in plain.blocks] == [4] * 4
    assert [block[4].p for block in dropped.blocks] == [0.1] * 4


def test_no_encoder_passes_everything_on() -> None:
    images = torch.randn(2, 3, 4, 5)
    assert torch.equal(Flatten((3, 4, 5))(images), images.view(2, 60)) and Flatten((3, 4, 5)).out_shape == (60,)
