"""What happens to pixels between store and backbone: named normalisations and batched augmentation."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "none": ((0.0,), (1 / 255,)),
    "unit": ((0.0,), (1.0,)),
    "centred": ((0.5,), (0.5,)),
    "egnn": (
        (120.39586422 / 255, 115.59361427 / 255, 104.54012653 / 255),
        (70.68188272 / 255, 68.27635443 / 255, 72.54505529 / 255),
    ),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Name -> (mean, std) on the 0..1 scale; "none" keeps the raw 0..255 values."""


def augment(images: Tensor, kind: str, generator: torch.Generator | None = None) -> Tensor:
    """Random transform of each uint8 image (n, C, H, W) on its device; the same shape and type comes back.

    crop: shift by up to 4 pixels with zero padding; crop_flip: and mirror; affine: small rotation, scale and shift.
    """
    if kind == "none":
        return images
    if kind in ("crop", "crop_flip"):
        return _shift(images, 4, kind == "crop_flip", generator)
    return _affine(images, generator)


def _random(n: int, images: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.rand(n, device=images.device, generator=generator)


def _shift(images: Tensor, pad: int, flip: bool, generator: torch.Generator | None) -> Tensor:
    """Crop of the original size from the padded image, by one gather: no loop and no interpolation."""
    n, channels, height, width = images.shape
    device = images.device
    offset_y = (_random(n, images, generator) * (2 * pad + 1)).long()[:, None]
    offset_x = (_random(n, images, generator) * (2 * pad + 1)).long()[:, None]
    rows = torch.arange(height, device=device) + offset_y
    columns = torch.arange(width, device=device).expand(n, width)
    if flip:
        columns = torch.where(_random(n, images, generator)[:, None] < 0.5, width - 1 - columns, columns)
    columns = columns + offset_x
    padded = F.pad(images, (pad, pad, pad, pad))
    picked = padded.gather(2, rows[:, None, :, None].expand(n, channels, height, width + 2 * pad))
    return picked.gather(3, columns[:, None, None, :].expand(n, channels, height, width))


def _affine(images: Tensor, generator: torch.Generator | None) -> Tensor:
    """Rotation up to 10 degrees, scale 0.9..1.1, shift up to 6 %; bilinear."""
    n = len(images)

    def uniform(bound: float) -> Tensor:
        return (_random(n, images, generator) * 2 - 1) * bound

    angle, scale = uniform(math.radians(10)), 1 + uniform(0.1)
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    matrix = torch.stack(
        [torch.stack([cosine, -sine, uniform(0.12)], 1), torch.stack([sine, cosine, uniform(0.12)], 1)], 1
    )
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images.float(), grid, align_corners=False).round().to(torch.uint8)
