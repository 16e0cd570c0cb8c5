"""Residual encoders with twelve layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from engram.nn.backbones.shape import probe_shape


class _ResidualBlock(nn.Module):
    """Three conv3x3 - BatchNorm with a 1x1 shortcut, activation after the sum, then pooling."""

    def __init__(self, inputs: int, outputs: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, width in enumerate((inputs, outputs, outputs)):
            layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
            if i < 2:
                layers.append(activation())
        self.body = nn.Sequential(*layers)
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.activation = activation()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.activation(self.body(x) + self.shortcut(x)))


class ResNet12(nn.Module):
    """Four residual blocks, LeakyReLU(0.1), global average: 64-128-256-512 has 7,996,800 parameters, the wide form
    64-160-320-640 has 12,424,320. Shapes: (n, C, H, W) -> (n, widths[-1])."""

    averaged: ClassVar[bool] = True

    def __init__(
        self,
        image_shape: tuple[int, ...],
        widths: tuple[int, int, int, int] = (64, 128, 256, 512),
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        inputs = (image_shape[0], *widths[:-1])
        self.blocks = nn.Sequential(
            *(
                _ResidualBlock(i, o, lambda: nn.LeakyReLU(0.1, inplace=True))
                for i, o in zip(inputs, widths, strict=True)
            )
        )
        self.dropout = nn.Dropout(dropout)
        self.out_shape: tuple[int, ...] = probe_shape(self, image_shape)

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(images)
        return self.dropout(features.mean((2, 3)) if self.averaged else features)


class ResNet12Map(ResNet12):
    """The same weights without the average, so that it can start from a trained `ResNet12`: (n, widths[-1], h, w)."""

    averaged = False
