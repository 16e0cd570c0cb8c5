"""Twenty-eight layers whose blocks normalise before they convolve."""

from __future__ import annotations

import torch
from torch import nn

from engram.nn.backbones.wide_resnet import WideResNet28, _WideBlock


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
