"""Eighteen layers: a shortcut is a layer only where the shape changes."""

from __future__ import annotations

import torch
from torch import nn

from engram.nn.backbones.resnet18 import ResNet18, _BasicBlock


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
