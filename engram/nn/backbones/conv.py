"""Encoders of four plain convolution blocks, and no encoder at all."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.nn import kernels
from engram.nn.backbones.shape import probe_shape


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
        self,
        image_shape: tuple[int, ...],
        out_features: int = 128,
        dropout: tuple[float, float] = (0.4, 0.5),
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


class ConvBlocks(nn.Module):
    """Four equal blocks conv3x3 - BatchNorm - pool - ReLU, flattened: conv64 (113,088), conv32 (28,896 parameters).

    Matching Net drops 0.1 of the activations after every block.
    """

    def __init__(self, image_shape: tuple[int, ...], width: int = 64, dropout: float = 0.0) -> None:
        super().__init__()
        channels = (image_shape[0], width, width, width, width)
        self.blocks = nn.Sequential(
            *(
                ConvBlock(channels[i], channels[i + 1], 0.0, 1, True, nn.Dropout(dropout) if dropout else None)
                for i in range(4)
            )
        )
        self.out_shape: tuple[int, ...] = (torch.Size(probe_shape(self.blocks, image_shape)).numel(),)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(images).flatten(1)


class Flatten(nn.Module):
    """No encoder: pixels (or given features) as they are. Shapes: (n, ...) -> (n, numel)."""

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.out_shape: tuple[int, ...] = (torch.Size(image_shape).numel(),)

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)
