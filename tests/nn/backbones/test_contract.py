"""Every backbone of the box gives its method what it owes it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engram.nn.backbones import BACKBONES, build_backbone
from engram.nn.backbones.contract import Backbone, as_map_shape


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


@pytest.mark.parametrize("name", BACKBONES)
def test_a_backbone_of_the_box_fulfils_the_contract(name: str) -> None:
    with torch.device("meta"):  # shapes alone
        backbone = build_backbone(name, (3, 84, 84), {})
    assert isinstance(backbone, Backbone) and isinstance(backbone, nn.Module)
    assert backbone.out_shape and all(size > 0 for size in backbone.out_shape)


def test_a_module_without_out_shape_does_not() -> None:
    assert not isinstance(nn.Flatten(), Backbone)


def test_a_vector_is_a_map_of_one_position() -> None:
    assert as_map_shape((64, 5, 4)) == (64, 5, 4) and as_map_shape((128,)) == (128, 1, 1)
