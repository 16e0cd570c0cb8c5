"""Convolutions by Winograd's scheme against PyTorch's in float64: values and gradients."""

import pytest
import torch
import torch.nn.functional as F

from engram.nn.kernels.cpu import winograd


@pytest.mark.parametrize(("size", "side"), [((12, 12), 4), ((6, 6), 3), ((3, 3), 3), ((40, 40), 4), ((1, 1), 0)])
def test_the_tile_with_fewest_products_is_taken(size: tuple[int, int], side: int) -> None:
    assert winograd.tile_side(*size) == side


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("side", [3, 4])
@pytest.mark.parametrize(("shape", "pad"), [((7, 16, 6, 6), 1), ((3, 32, 14, 14), 0), ((40, 48, 5, 9), 1)])
def test_winograd_is_a_convolution(shape: tuple[int, ...], pad: int, side: int) -> None:
    x, weight = torch.randn(shape, requires_grad=True), torch.randn(80, shape[1], 3, 3, requires_grad=True)
    mine = winograd.Convolution.apply(x, weight, pad, side)
    exact = F.conv2d(x.double(), weight.double(), padding=pad)
    gradient = torch.randn_like(mine)
    found = torch.autograd.grad(mine, (x, weight), gradient)
    wanted = torch.autograd.grad(exact, (x, weight), gradient.double())
    for fast, right in zip([mine, *found], [exact, *wanted], strict=True):
        assert (fast - right).norm() <= 2e-5 * right.norm()
