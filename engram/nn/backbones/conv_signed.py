"""Four convolution blocks whose features keep their sign."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.nn.backbones.shape import probe_shape


class ConvSigned(nn.Module):
    """conv3x3 without bias - BatchNorm - pool - ReLU, the last block without its ReLU, so that cosines of features may
    be negative (LwoF). 64-64-64-64 has 112,832 parameters, 64-64-128-128 260,544. Shapes: (n, C, H, W) -> (n, features)
    """

    def __init__(self, image_shape: tuple[int, ...], widths: tuple[int, int, int, int] = (64, 64, 64, 64)) -> None:
        super().__init__()
        self.blocks = nn.Sequential()
        for i, (inputs, outputs) in enumerate(zip((image_shape[0], *widths[:-1]), widths, strict=True)):
            convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            nn.init.normal_(convolution.weight, std=(2 / (9 * outputs)) ** 0.5)
            # Pooling stands before the ReLU: both are monotone, so the result is the same for a quarter of the work.
            block = [convolution, nn.BatchNorm2d(outputs), nn.MaxPool2d(2)]
            self.blocks.append(nn.Sequential(*block, *([nn.ReLU(inplace=True)] if i < 3 else [])))
        self.out_shape: tuple[int, ...] = (torch.Size(probe_shape(self.blocks, image_shape)).numel(),)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(images).flatten(1)
