"""Wide residual encoder of 28 layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class _WideBlock(nn.Module):
    """Pre-activation block; where widths differ the strided 1x1 shortcut sees the already normalised input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        pre = torch.relu(self.norm1(x))
        out = self.conv2(torch.relu(self.norm2(self.conv1(pre))))
        return out + (x if self.shortcut is None else self.shortcut(pre))


class WideResNet28(nn.Module):
    """WRN-28-10: 3 groups of 4 blocks, widths 160-320-640, strides 1-2-2, global average; 36,472,784 parameters."""

    def __init__(self, image_shape: tuple[int, ...], factor: int = 10) -> None:
        super().__init__()
        widths = [16 * factor, 32 * factor, 64 * factor]
        layers: list[nn.Module] = [nn.Conv2d(image_shape[0], 16, 3, padding=1, bias=False)]
        inputs = 16
        for width, stride in zip(widths, (1, 2, 2), strict=True):
            for block in range(4):
                layers.append(_WideBlock(inputs, width, stride if block == 0 else 1))
                inputs = width
        self.blocks = nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
        self.out_shape: tuple[int, ...] = (inputs,)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(images).mean((2, 3))
