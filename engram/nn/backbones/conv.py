"""Encoders of four plain convolution blocks, and no encoder at all."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.nn.backbones.shape import probe_shape


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
        self.blocks = nn.Sequential()
        for stage in range(4):
            layers: list[nn.Module] = [
                nn.Conv2d(widths[stage], widths[stage + 1], 3, padding=0 if stage == 1 else 1, bias=False),
                nn.BatchNorm2d(widths[stage + 1]),
                nn.MaxPool2d(2),  # before the activation: the same result, a quarter of the work
                nn.LeakyReLU(0.2, inplace=True),
            ]
            if stage >= 2:
                layers.append(nn.Dropout2d(dropout[stage - 2]))
            self.blocks.append(nn.Sequential(*layers))
        flat = torch.Size(probe_shape(self.blocks, image_shape)).numel()
        self.head = nn.Sequential(nn.Linear(flat, out_features), nn.BatchNorm1d(out_features))
        self.out_shape: tuple[int, ...] = (out_features,)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.head(self.blocks(images).flatten(1))
        return features


class ConvBlocks(nn.Module):
    """Four equal blocks conv3x3 - BatchNorm - ReLU - pool, flattened: conv64 (113,088) and conv32 (28,896 parameters).

    Pooling stands before the ReLU: both are monotone, so the result is the same for a quarter of the work. Matching
    Net drops 0.1 of the activations after every block.
    """

    def __init__(self, image_shape: tuple[int, ...], width: int = 64, dropout: float = 0.0) -> None:
        super().__init__()
        channels = (image_shape[0], width, width, width, width)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(channels[i], channels[i + 1], 3, padding=1),
                    nn.BatchNorm2d(channels[i + 1]),
                    nn.MaxPool2d(2),
                    nn.ReLU(inplace=True),
                    *([nn.Dropout(dropout)] if dropout else []),
                )
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
