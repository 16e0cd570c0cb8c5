"""Kernels of the first stage in Triton's interpreter on the CPU against ordinary modules: values and gradients."""

import copy

import pytest
import torch
import torch.nn.functional as F
from interpreted import assert_equal, norm, outcome
from torch import nn

from engram.nn.kernels import cuda


@pytest.mark.parametrize("shape", [(9, 3, 8, 8), (4, 1, 7, 5)])
def test_first_stage_is_normalisation_convolution_and_the_three_modules(shape: tuple[int, ...]) -> None:
    channels = shape[1]
    fast, convolution = norm(16), nn.Conv2d(channels, 16, 3, padding=1, bias=False)
    plain, plain_convolution = copy.deepcopy(fast), copy.deepcopy(convolution)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8)
    pixels[0] = 255  # a flat image: all its windows are ties
    scale, shift = torch.rand(channels, 1, 1) / 100, torch.randn(channels, 1, 1)
    gradient = torch.randn(shape[0], 16, shape[2] // 2, shape[3] // 2)
    layers = [convolution, fast, nn.MaxPool2d(2), nn.LeakyReLU(0.2)]
    mine = outcome(cuda.first_stage(pixels, layers, scale, shift), gradient, fast, convolution)
    mapped = F.leaky_relu(F.max_pool2d(plain(plain_convolution(pixels * scale + shift)), 2), 0.2)
    assert_equal(mine, outcome(mapped, gradient, plain, plain_convolution))
