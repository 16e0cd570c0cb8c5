"""The residual encoder of SNAIL."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn.backbones.contract import probe_shape


class _Block(nn.Module):
    """Three conv3x3 - BatchNorm - LeakyReLU(0.1), plus a 1x1 shortcut; then pool and dropout."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential()
        for width in (inputs, outputs, outputs):
            self.body.append(nn.Conv2d(width, outputs, 3, padding=1, bias=False))
            self.body.append(nn.BatchNorm2d(outputs))
            self.body.append(nn.LeakyReLU(0.1, inplace=True))
        self.shortcut = nn.Conv2d(inputs, outputs, 1)
        self.end = nn.Sequential(nn.MaxPool2d(2), nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.end(self.body(x) + self.shortcut(x))
        return features


class SnailResNet(nn.Module):
    """Blocks of 64, 96, 128 and 256 channels, mean over the map, 256 -> 2048 -> 384; 3,545,056 parameters.

    The 1x1 convolution to 2048 channels stands after the mean, where it is a linear layer: the two commute.
    Shapes: (n, C, H, W) -> (n, 384)
    """

    compiles: ClassVar[bool] = True

    def __init__(self, image_shape: tuple[int, ...], out_features: int = 384, dropout: float = 0.1) -> None:
        super().__init__()
        widths = (64, 96, 128, 256)
        inputs = (image_shape[0], *widths[:-1])
        self.blocks = nn.Sequential(*(_Block(i, o, dropout) for i, o in zip(inputs, widths, strict=True)))
        self.wide, self.out = nn.Linear(widths[-1], 2048), nn.Linear(2048, out_features)
        self.dropout = nn.Dropout(dropout)
        self.out_shape: tuple[int, ...] = (out_features,)
        probe_shape(self, image_shape)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.out(self.dropout(F.relu(self.wide(self.blocks(images).mean((2, 3))))))
        return features
