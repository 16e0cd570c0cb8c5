"""Folding BatchNorm changes the layers and not the answers."""

from __future__ import annotations

import torch
from torch import nn

from engram.nn.backbones import build_backbone
from engram.nn.folded import folded


def test_the_same_features_without_batch_norm_after_convolutions() -> None:
    torch.manual_seed(0)
    for name in ("conv4", "conv64", "resnet12"):
        backbone = build_backbone(name, (3, 32, 32), {})
        with torch.no_grad():
            backbone.train()(torch.randn(8, 3, 32, 32))  # running statistics that are not 0 and 1
            for part in backbone.modules():
                if isinstance(part, nn.BatchNorm2d):
                    part.weight.uniform_(0.5, 2)
                    part.bias.uniform_(-1, 1)
            images, carried = torch.randn(4, 3, 32, 32), folded(backbone)
            assert torch.allclose(carried(images), backbone.eval()(images), atol=1e-4), name
    assert not any(
        isinstance(part, nn.BatchNorm2d) for part in folded(build_backbone("conv4", (3, 32, 32), {})).modules()
    )


def test_the_original_is_left_as_it_was() -> None:
    backbone = build_backbone("conv32", (1, 28, 28), {})
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    folded(backbone)
    assert backbone.training and all(torch.equal(v, before[k]) for k, v in backbone.state_dict().items())
