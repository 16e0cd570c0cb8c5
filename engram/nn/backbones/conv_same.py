"""Four plain convolution blocks whose pooling keeps the odd row and column."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.nn.backbones.shape import probe_shape


class ConvSame(nn.Module):
    """Four blocks conv3x3 - BatchNorm - pool - ReLU, flattened, where half of an odd size is rounded up.

    84 -> 42 -> 21 -> 11 -> 6, so a width of 32 gives 1152 features (28,896 parameters) where `conv32` gives 800.
    """

    def __init__(self, image_shape: tuple[int, ...], width: int = 32) -> None:
        super().__init__()
        channels = (image_shape[0], width, width, width, width)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(channels[i], channels[i + 1], 3, padding=1),
                    nn.BatchNorm2d(channels[i + 1]),
                    nn.MaxPool2d(2, ceil_mode=True),
                    nn.ReLU(inplace=True),
                )
                for i in range(4)
            )
        )
        self.out_shape: tuple[int, ...] = (torch.Size(probe_shape(self.blocks, image_shape)).numel(),)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(images).flatten(1)
