"""Residual encoders: ResNet-12, ResNet-18, WRN-28, and TADAM's, whose layers a task may scale and shift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn.backbones.contract import probe_shape


class DropBlock(nn.Module):
    """Squares of a map are zeroed while training (Ghiasi et al., 2018) and the rest scaled, so that the mean stays.

        gamma = share / size^2 * h w / ((h - size + 1) (w - size + 1)),  y = x * kept * count / count_kept

    Each place where a whole square fits starts one with probability gamma, in every channel by itself; ``size`` is at
    most the side of the map. Squares overlap, so a little less than ``share`` is zero. Shapes: (n, c, h, w) -> same.
    """

    def __init__(self, share: float, size: int) -> None:
        super().__init__()
        self.share, self.size = share, size

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.share):
            return x
        n, channels, h, w = x.shape
        size = min(self.size, h, w)
        places = (h - size + 1, w - size + 1)
        gamma = self.share / size**2 * h * w / (places[0] * places[1])
        layout = torch.channels_last  # that of the encoder's maps: one of another layout is slow to multiply with
        starts = torch.empty(n, channels, *places, dtype=x.dtype, device=x.device, memory_format=layout)
        starts = F.pad(starts.bernoulli_(gamma), (size - 1,) * 4)
        kept = 1 - F.max_pool2d(starts, size, 1)
        return x * kept * (kept.numel() / kept.sum(dtype=torch.float32).clamp(min=1))


class _ResidualBlock(nn.Module):
    """Three conv3x3 - BatchNorm with a 1x1 shortcut, activation after the sum, then pooling, then ``drop``."""

    def __init__(self, inputs: int, outputs: int, activation: Callable[[], nn.Module], drop: DropBlock) -> None:
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
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        dropped: Tensor = self.drop(self.pool(self.activation(self.body(x) + self.shortcut(x))))
        return dropped


class ResNet12(nn.Module):
    """Four residual blocks, LeakyReLU(0.1), global average: 64-128-256-512 has 7,996,800 parameters, the wide form
    64-160-320-640 has 12,424,320. ``drop_block`` is the share of the last two blocks' maps that `DropBlock` zeroes.
    Shapes: (n, C, H, W) -> (n, widths[-1])."""

    compiles: ClassVar[bool] = True
    averaged: ClassVar[bool] = True

    def __init__(
        self,
        image_shape: tuple[int, ...],
        widths: tuple[int, int, int, int] = (64, 128, 256, 512),
        dropout: float = 0.0,
        drop_block: float = 0.0,
        drop_block_size: int = 5,
    ) -> None:
        super().__init__()
        inputs, shares = (image_shape[0], *widths[:-1]), (0.0, 0.0, drop_block, drop_block)
        self.blocks = nn.Sequential(
            *(
                _ResidualBlock(i, o, lambda: nn.LeakyReLU(0.1, inplace=True), DropBlock(share, drop_block_size))
                for i, o, share in zip(inputs, widths, shares, strict=True)
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

    compiles: ClassVar[bool] = True
    averaged: ClassVar[bool] = True

    def __init__(self, image_shape: tuple[int, ...]) -> None:
        super().__init__()
        stem = [nn.Conv2d(image_shape[0], 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        blocks: list[nn.Module] = []
        for group, (inputs, outputs) in enumerate(zip((64, 64, 128, 256), (64, 128, 256, 512), strict=True)):
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

    compiles: ClassVar[bool] = True

    def __init__(self, image_shape: tuple[int, ...], factor: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(image_shape[0], 16, 3, padding=1, bias=False)]
        inputs = 16
        for width, stride in ((16 * factor, 1), (32 * factor, 2), (64 * factor, 2)):
            for block in range(4):
                layers.append(_WideBlock(inputs, width, stride if block == 0 else 1))
                inputs = width
        self.blocks = nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
        self.out_shape: tuple[int, ...] = (inputs,)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(images).mean((2, 3))


POOLED_BLOCKS = 3
"""the public code pools after the first three blocks only"""


_norm = partial(nn.BatchNorm2d, eps=1e-3, momentum=0.05)


class _FilmBlock(nn.Module):
    """Three conv3x3 - BatchNorm - [h + gamma h + beta] with SiLU after the first two; the 1x1 shortcut is added, then
    SiLU and, where ``pooled``, 2x2 max-pooling that rounds up."""

    def __init__(self, inputs: int, outputs: int, pooled: bool) -> None:
        super().__init__()
        convs = (nn.Conv2d(width, outputs, 3, padding=1, bias=False) for width in (inputs, outputs, outputs))
        self.convs, self.norms = nn.ModuleList(convs), nn.ModuleList(_norm(outputs) for _ in range(3))
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), _norm(outputs))
        self.pool = nn.MaxPool2d(2, ceil_mode=True) if pooled else nn.Identity()

    def forward(self, x: Tensor, film: Sequence[Tensor]) -> Tensor:
        """``film``: gamma and beta of each of the three layers, (n, outputs) each; or nothing."""
        out = x
        for layer, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            out = norm(conv(out))
            if film:
                gamma, beta = (part[..., None, None].to(out.dtype) for part in film[2 * layer : 2 * layer + 2])
                out = out + gamma * out + beta
            out = F.silu(out, inplace=True) if layer < 2 else out
        pooled: Tensor = self.pool(F.silu(out + self.shortcut(x), inplace=True))
        return pooled


class FilmResNet12(nn.Module):
    """ResNet-12 in TADAM's form, 64-128-256-512 and SiLU, global average: 7,996,800 parameters.

    ``film`` holds gamma and beta of each of the twelve 3x3 layers side by side (layer by layer, gamma first), one row
    per image; without it the layers stay as they are.

    Shapes: (n, C, H, W), (n, 2 * sum(film_widths)) -> (n, widths[-1])
    """

    compiles: ClassVar[bool] = True

    def __init__(self, image_shape: tuple[int, ...], widths: tuple[int, int, int, int] = (64, 128, 256, 512)) -> None:
        super().__init__()
        inputs = (image_shape[0], *widths[:-1])
        self.blocks = nn.ModuleList(
            _FilmBlock(i, o, pooled=k < POOLED_BLOCKS) for k, (i, o) in enumerate(zip(inputs, widths, strict=True))
        )
        self.film_widths = tuple(width for width in widths for _ in range(3))
        self.out_shape: tuple[int, ...] = (widths[-1],)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.normal_(part.weight, std=(0.2 / (part.kernel_size[0] ** 2 * part.out_channels)) ** 0.5)
        probe_shape(self, image_shape)

    def forward(self, images: Tensor, film: Tensor | None = None) -> Tensor:
        parts = () if film is None else film.split([width for width in self.film_widths for _ in "gb"], 1)
        for k, block in enumerate(self.blocks):
            images = block(images, parts[6 * k : 6 * k + 6])
        return images.mean((2, 3))
