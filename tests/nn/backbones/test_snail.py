"""The encoder of SNAIL: the wide layer may stand after the mean."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from engram.nn.backbones.snail import SnailResNet


def test_the_wide_layer_and_the_mean_commute() -> None:
    """As the paper has it: a 1x1 convolution to 2048 channels, then the mean over the map."""
    torch.manual_seed(0)
    backbone, images = SnailResNet((1, 32, 32), out_features=5).eval(), torch.randn(2, 1, 32, 32)
    with torch.no_grad():
        kernel = backbone.wide.weight[:, :, None, None]
        wide = F.conv2d(backbone.blocks(images), kernel, backbone.wide.bias).mean((2, 3))
        torch.testing.assert_close(backbone(images), backbone.out(wide.relu()), rtol=1e-4, atol=1e-5)
    assert backbone.out_shape == (5,)


def test_dropout_can_be_set() -> None:
    parts = [part.p for part in SnailResNet((1, 16, 16), dropout=0.3).modules() if isinstance(part, torch.nn.Dropout)]
    assert parts == [0.3] * 5
