"""Encoder of five convolution blocks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn.backbones.shape import probe_shape


class ShiftNorm(nn.BatchNorm2d):
    """BatchNorm with a learned shift and no gain, y = (x - mean) / sqrt(var + eps) + bias: (n, C, H, W), the same.

    The shift is added outside: on a GPU the fused layer has no gradient for a shift that comes without a gain.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, affine=False)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        running = self.running_mean, self.running_var
        normalised = F.batch_norm(x, *running, training=self.training, momentum=self.momentum or 0.0, eps=self.eps)
        return normalised + self.bias.to(normalised.dtype).view(-1, 1, 1)


class Conv5(nn.Module):
    """Five blocks conv3x3 without bias - BatchNorm (shift only) - ReLU - dropout - pool, flattened (VERSA).

    149,504 parameters and 256 features at 3x84x84. Shapes: (n, C, H, W) -> (n, features)
    """

    def __init__(self, image_shape: tuple[int, ...], width: int = 64, dropout: float = 0.5) -> None:
        super().__init__()
        self.blocks = nn.Sequential()
        for inputs in (image_shape[0], width, width, width, width):
            convolution = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
            nn.init.xavier_normal_(convolution.weight)
            layers = (convolution, ShiftNorm(width), nn.ReLU(inplace=True), nn.Dropout(dropout), nn.MaxPool2d(2))
            self.blocks.append(nn.Sequential(*layers))
        self.out_shape: tuple[int, ...] = (torch.Size(probe_shape(self.blocks, image_shape)).numel(),)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(images).flatten(1)
