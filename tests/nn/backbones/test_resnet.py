"""Twelve layers in four residual blocks."""

from __future__ import annotations

import torch

from engram.nn.backbones.resnet import ResNet12

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
