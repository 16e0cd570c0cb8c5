"""Every backbone of the box gives its method what it owes it."""

from __future__ import annotations

import pytest
import torch

from engram.nn.backbones import build_backbone


@pytest.mark.parametrize(
    ("name", "shape", "out"),
    [
        ("conv4", (3, 84, 84), (128,)),
        ("conv4", (1, 28, 28), (128,)),
        ("conv64", (3, 84, 84), (1600,)),
        ("conv64_map", (3, 84, 84), (64, 5, 5)),
        ("conv64_relation", (3, 84, 84), (64, 19, 19)),
        ("conv64_relation", (1, 28, 28), (64, 5, 5)),
        ("conv64_cova", (3, 84, 84), (64, 21, 21)),
        ("conv32", (3, 84, 84), (800,)),
        ("conv32_same", (3, 84, 84), (1152,)),
        ("resnet12", (3, 84, 84), (512,)),
        ("resnet12_film", (3, 84, 84), (512,)),
        ("resnet12_wide_map", (3, 84, 84), (640, 5, 5)),
        ("resnet18", (3, 84, 84), (512,)),
        ("resnet18_map", (3, 84, 84), (512, 3, 3)),
        ("conv64_relation", (3, 84, 84), (64, 19, 19)),
    ],
)
def test_out_shape_is_what_comes_out(name: str, shape: tuple[int, ...], out: tuple[int, ...]) -> None:
    backbone = build_backbone(name, shape, {}).eval()
    assert backbone.out_shape == out == tuple(backbone(torch.randn(2, *shape)).shape[1:])
