"""Encoders of four or five plain convolution blocks, flattened or as a map of positions, and no encoder at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from engram.nn import kernels
from engram.nn.backbones.contract import probe_shape


class ConvBlock(nn.Sequential):
    """conv3x3 - BatchNorm - pool - LeakyReLU(slope) [- dropout]; slope 0 is a ReLU.

    Pooling stands before the activation: both are monotone, so the result is the same for a quarter of the work.
    """

    def __init__(
        self, inputs: int, outputs: int, slope: float, padding: int, bias: bool, dropout: nn.Module | None = None
    ) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(inputs, outputs, 3, padding=padding, bias=bias),
            nn.BatchNorm2d(outputs),
            nn.MaxPool2d(2),
            nn.LeakyReLU(slope, inplace=True) if slope else nn.ReLU(inplace=True),
        ]
        super().__init__(*layers, *([dropout] if dropout else []))

    def forward(self, x: Tensor, *colours: Tensor) -> Tensor:
        """``colours``: a scale and a shift (c, 1, 1), where pixels are given in place of pixels * scale + shift."""
        layers = list(self)
        x = kernels.conv_block(x, layers[:4], *colours)
        return layers[4](x) if len(layers) > 4 else x


class Conv4(nn.Module):
    """The 64-96-128-256 embedding of GNN, EGNN and CML-BGNN; 1,283,200 parameters at 84x84 with 128 outputs.

    Four stages conv3x3 - BatchNorm - pool - LeakyReLU(0.2), the second without padding, channel dropout 0.4 and 0.5
    in the last two; then linear and BatchNorm without activation. Shapes: (n, C, H, W) -> (n, out_features).
    """

    def __init__(
        self, image_shape: tuple[int, ...], out_features: int = 128, dropout: tuple[float, float] = (0.4, 0.5)
    ) -> None:
        super().__init__()
        widths = (image_shape[0], 64, 96, 128, 256)
        drops = (None, None, *(nn.Dropout2d(rate) if rate else None for rate in dropout))
        self.blocks = nn.Sequential(
            *(
                ConvBlock(widths[i], widths[i + 1], 0.2, padding=0 if i == 1 else 1, bias=False, dropout=drops[i])
                for i in range(4)
            )
        )
        flat = torch.Size(probe_shape(self.blocks, image_shape)).numel()
        self.head = nn.Sequential(nn.Linear(flat, out_features), nn.BatchNorm1d(out_features))
        self.out_shape: tuple[int, ...] = (out_features,)

    def forward(self, images: Tensor) -> Tensor:
        return self._finish(self.blocks[0](images))

    def from_pixels(self, pixels: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """`forward` of pixels * scale + shift, where these need not be written down."""
        return self._finish(self.blocks[0](pixels, scale, shift))

    def _finish(self, x: Tensor) -> Tensor:
        features: Tensor = self.head(self.blocks[1:](x).flatten(1))
        return features


class _FlatBlocks(nn.Module):
    """Blocks one after another, then flattened. Shapes: (n, C, H, W) -> (n, features)"""

    def __init__(self, image_shape: tuple[int, ...], blocks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*blocks)
        self.out_shape: tuple[int, ...] = (torch.Size(probe_shape(self.blocks, image_shape)).numel(),)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(images).flatten(1)


class ConvBlocks(_FlatBlocks):
    """Four equal blocks conv3x3 - BatchNorm - pool - ReLU, flattened: conv64 (113,088), conv32 (28,896 parameters).

    Matching Net drops 0.1 of the activations after every block.
    """

    def __init__(self, image_shape: tuple[int, ...], width: int = 64, dropout: float = 0.0) -> None:
        super().__init__(
            image_shape,
            (
                ConvBlock(inputs, width, 0.0, 1, True, nn.Dropout(dropout) if dropout else None)
                for inputs in (image_shape[0], width, width, width)
            ),
        )


class ConvSame(_FlatBlocks):
    """Four blocks conv3x3 - BatchNorm - pool - ReLU, flattened, where half of an odd size is rounded up.

    84 -> 42 -> 21 -> 11 -> 6, so a width of 32 gives 1152 features (28,896 parameters) where `conv32` gives 800.
    """

    def __init__(self, image_shape: tuple[int, ...], width: int = 32) -> None:
        super().__init__(
            image_shape,
            (
                nn.Sequential(
                    nn.Conv2d(inputs, width, 3, padding=1),
                    nn.BatchNorm2d(width),
                    nn.MaxPool2d(2, ceil_mode=True),
                    nn.ReLU(inplace=True),
                )
                for inputs in (image_shape[0], width, width, width)
            ),
        )


class ConvSigned(_FlatBlocks):
    """conv3x3 without bias - BatchNorm - pool - ReLU, the last block without its ReLU, so that cosines of features may
    be negative (LwoF). 64-64-64-64 has 112,832 parameters, 64-64-128-128 260,544.
    """

    def __init__(self, image_shape: tuple[int, ...], widths: tuple[int, int, int, int] = (64, 64, 64, 64)) -> None:
        blocks = [
            ConvBlock(inputs, outputs, slope, padding=1, bias=False)  # a slope of 1 is no activation
            for inputs, outputs, slope in zip((image_shape[0], *widths[:-1]), widths, (0.0, 0.0, 0.0, 1.0), strict=True)
        ]
        super().__init__(image_shape, blocks)
        fan_out_normal(self)


class ShiftNorm(nn.BatchNorm2d):
    """BatchNorm with a learned shift and no gain, y = (x - mean) / sqrt(var + eps) + bias: (n, C, H, W), the same.

    Its gain is a constant 1: on a GPU the library's layer has no gradient for a shift that comes without a gain.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        del self.weight
        self.register_buffer("weight", torch.ones(width), persistent=False)


class Conv5(_FlatBlocks):
    """Five blocks conv3x3 without bias - BatchNorm (shift only) - ReLU - dropout - pool, flattened (VERSA).

    149,504 parameters and 256 features at 3x84x84. Without dropout ReLU stands after the pooling, as in `ConvBlock`.
    """

    def __init__(self, image_shape: tuple[int, ...], width: int = 64, dropout: float = 0.5) -> None:
        blocks: list[nn.Module] = []
        for inputs in (image_shape[0], width, width, width, width):
            block = ConvBlock(inputs, width, 0.0, 1, False)
            convolution, _, pool, activation = block
            nn.init.xavier_normal_(convolution.weight)  # type: ignore[arg-type]
            norm = block[1] = ShiftNorm(width)
            late = (convolution, norm, activation, nn.Dropout(dropout), pool)
            blocks.append(nn.Sequential(*late) if dropout else block)
        super().__init__(image_shape, blocks)


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
            block = ConvBlock(width if stage else image_shape[0], width, self.slope, padding, self.bias)
            convolution, norm, _, activation = block
            self.blocks.append(block if stage < self.n_pooled else nn.Sequential(convolution, norm, activation))
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


class Flatten(nn.Module):
    """No encoder: pixels (or given features) as they are. Shapes: (n, ...) -> (n, numel)."""

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.out_shape: tuple[int, ...] = (torch.Size(image_shape).numel(),)

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)
