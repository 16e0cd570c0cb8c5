"""Layers make one call: they name no kernel, and what PyTorch does for them is their equation."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from engram.nn import kernels

PACKAGE = Path(kernels.__file__).parents[2]
NAMED = r"(?i)\b(?:fused|native|triton|winograd)\b|kernels\.(?:cuda|cpu)"
LAYERS = ("nn/graph.py", "nn/pairs.py", "nn/history.py", "nn/backbones/conv.py")
LOOP = ("training/loop.py", "training/running.py", "training/trainer.py")


@pytest.mark.parametrize("name", [*LAYERS, *LOOP])
def test_no_layer_and_no_loop_knows_a_kernel_by_name(name: str) -> None:
    found = re.findall(NAMED, (PACKAGE / name).read_text())
    assert not found, f"{name} names {found}: ask engram.nn.kernels"


def test_a_block_of_pixels_is_the_block_of_the_images_they_make() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4).eval(), nn.MaxPool2d(2), nn.LeakyReLU(0.2)]
    pixels = torch.randint(0, 256, (2, 3, 7, 6), dtype=torch.uint8)
    scale, shift = torch.rand(3, 1, 1), torch.randn(3, 1, 1)
    found = kernels.conv_block(pixels, layers, scale, shift)
    assert found.shape == (2, 4, 3, 3)
    torch.testing.assert_close(found, kernels.conv_block(pixels * scale + shift, layers))


def test_rows_cannot_be_counted_by_ordinary_modules() -> None:
    norm, values = nn.BatchNorm1d(8), torch.randn(6, 8)
    assert not kernels.can_count(values, [norm])
    with pytest.raises(AssertionError, match="counts every row once"):
        kernels.pointwise(values, norm, 0.2, 0.0, 2, kernels.Counts(torch.ones(3), 3))
