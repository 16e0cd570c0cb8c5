"""The standard residual encoder of eighteen layers, averaged to a vector or kept as a map."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from engram.nn.backbones.shape import probe_shape

WIDTHS = (64, 128, 256, 512)


class _BasicBlock(nn.Module):
    """Two conv3x3 - BatchNorm around a shortcut, a strided 1x1 where the shape changes; ReLU after the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        changes = inputs != outputs or stride != 1
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if changes
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet18(nn.Module):
    """Stem conv7x7/2 - BatchNorm - ReLU - pool3x3/2, four groups of two blocks 64-128-256-512, global average;
    11,176,512 parameters. Shapes: (n, C, H, W) -> (n, 512)."""

    averaged: ClassVar[bool] = True

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        stem = [nn.Conv2d(image_shape[0], 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        blocks: list[nn.Module] = []
        for group, (inputs, outputs) in enumerate(zip((64, *WIDTHS[:-1]), WIDTHS, strict=True)):
            blocks += [_BasicBlock(inputs, outputs, 2 if group else 1), _BasicBlock(outputs, outputs, 1)]
        self.blocks = nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        self.out_shape: tuple[int, ...] = probe_shape(self, image_shape)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(images)
        return features.mean((2, 3)) if self.averaged else features


class ResNet18Map(ResNet18):
    """The same weights without the average: 512x3x3 at 84x84, so that it can start from a trained `ResNet18`."""

    averaged = False
