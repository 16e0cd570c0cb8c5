"""Kernels of a stage of maps in Triton's interpreter on the CPU against ordinary modules: values and gradients."""

import copy

import pytest
import torch
import torch.nn.functional as F
from interpreted import assert_equal, norm, outcome
from torch import nn

from engram.nn.kernels import cuda


@pytest.mark.parametrize("shape", [(5, 8, 6, 6), (3, 12, 5, 7)])
def test_norm_pool_activate_is_the_three_modules(shape: tuple[int, ...]) -> None:
    fast = norm(shape[1])
    plain = copy.deepcopy(fast)
    x = torch.randn(shape).relu()  # many equal values: the first of them has the gradient
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    gradient = torch.randn(shape[0], shape[1], shape[2] // 2, shape[3] // 2)
    layers = [nn.Identity(), fast, nn.MaxPool2d(2), nn.LeakyReLU(0.2)]
    mine = outcome(cuda.conv_block(a, layers), gradient, fast, inputs=(a,))
    expected = outcome(F.leaky_relu(F.max_pool2d(plain(b), 2), 0.2), gradient, plain, inputs=(b,))
    assert_equal(mine, expected)
