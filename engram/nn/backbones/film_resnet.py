"""The residual encoder of TADAM, whose layers a task may scale and shift."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn.backbones.contract import probe_shape

POOLED_BLOCKS = 3
"""the public code pools after the first three blocks only"""


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.05)


class _FilmBlock(nn.Module):
    """Three conv3x3 - BatchNorm - [h + gamma h + beta] with SiLU after the first two; the 1x1 shortcut is added, then
    SiLU and, where ``pooled``, 2x2 max-pooling that rounds up."""

    def __init__(self, inputs: int, outputs: int, pooled: bool) -> None:
        super().__init__()
        widths = (inputs, outputs, outputs)
        self.convs = nn.ModuleList(nn.Conv2d(width, outputs, 3, padding=1, bias=False) for width in widths)
        self.norms = nn.ModuleList(_norm(outputs) for _ in widths)
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
