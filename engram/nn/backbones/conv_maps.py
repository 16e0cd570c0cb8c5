"""Encoders of four convolution blocks that keep their map of positions."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from engram.nn.backbones.contract import probe_shape
from engram.nn.backbones.conv import ConvBlock


class ConvMap(nn.Module):
    """conv64 before it is flattened: conv3x3 - BatchNorm - pool - ReLU four times; 113,088 parameters.

    Shapes: (n, C, H, W) -> (n, width, h, w), 64x5x5 at 84x84. The variants below change the class's constants.
    """

    padding: ClassVar[tuple[int, int, int, int]] = (1, 1, 1, 1)
    n_pooled: ClassVar[int] = 4
    """first blocks that end in a 2x2 pooling"""
    bias: ClassVar[bool] = True
    slope: ClassVar[float] = 0.0
    """of the activation below 0"""

    def __init__(self, image_shape: tuple[int, ...], width: int = 64) -> None:
        super().__init__()
        self.blocks = nn.Sequential()
        for stage, padding in enumerate(self.padding):
            inputs = width if stage else image_shape[0]
            if stage < self.n_pooled:
                self.blocks.append(ConvBlock(inputs, width, self.slope, padding, self.bias))
                continue
            self.blocks.append(
                nn.Sequential(
                    nn.Conv2d(inputs, width, 3, padding=padding, bias=self.bias),
                    nn.BatchNorm2d(width),
                    nn.LeakyReLU(self.slope, inplace=True) if self.slope else nn.ReLU(inplace=True),
                )
            )
        self.out_shape: tuple[int, ...] = probe_shape(self, image_shape)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(images)
        return features


class RelationConv(ConvMap):
    """Relation Net's: no padding in the first two blocks, no pooling in the last two; 64x19x19 at 84x84, 113,088."""

    padding = (0, 0, 1, 1)
    n_pooled = 2

    def __init__(self, image_shape: tuple[int, ...], width: int = 64) -> None:
        super().__init__(image_shape, width)
        fan_out_normal(self)


class CovaConv(ConvMap):
    """CovaMNet's: no bias, LeakyReLU(0.2), pooling in the first two blocks; 64x21x21 at 84x84, 112,832 parameters."""

    n_pooled = 2
    bias = False
    slope = 0.2

    def __init__(self, image_shape: tuple[int, ...], width: int = 64) -> None:
        super().__init__(image_shape, width)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.normal_(part.weight, 0.0, 0.02)
            elif isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.weight, 1.0, 0.02)


def fan_out_normal(module: nn.Module) -> None:
    """Convolution weights from N(0, 2 / (k k c_out)), biases 0."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.normal_(part.weight, 0.0, (2 / (part.kernel_size[0] ** 2 * part.out_channels)) ** 0.5)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def as_map_shape(out_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(C, h, w) of what a backbone gives; a vector (d,) is a map of one position, (d, 1, 1)."""
    channels, height, width = out_shape if len(out_shape) == 3 else (*out_shape, 1, 1)
    return channels, height, width
