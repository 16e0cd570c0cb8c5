"""What happens to pixels between store and backbone: named normalisations and batched augmentation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

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
    "gnn": ((120.45 / 255, 115.74 / 255, 104.65 / 255), (0.5, 0.5, 0.5)),
    "relation": ((0.92206,), (0.08426,)),
    "lite": ((127 / 255,), (128 / 255,)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Name -> (mean, std) on the 0..1 scale; "none" keeps the raw 0..255 values."""


class Crop(NamedTuple):
    """The windows of augmentation = "standard": [least, greatest] of what is drawn for each image."""

    area: tuple[float, ...] = (0.7, 1.0)
    """share of the image's area, drawn evenly"""
    aspect: tuple[float, ...] = (1.0, 1.0)
    """width / height, each as a share of the image's own, drawn evenly on the log scale"""


CROP = Crop()


@dataclass(frozen=True)
class Draws:
    """Random numbers for ``n`` images; where they are ``rows`` of ``total`` images, those these have among all."""

    n: int
    device: torch.device
    generator: torch.Generator | None = None
    rows: Tensor | None = None
    total: int = 0

    def __call__(self, *times: int) -> Tensor:
        """From 0 to 1: (*times, n)"""
        numbers = torch.rand(*times, self.total or self.n, device=self.device, generator=self.generator)
        return numbers if self.rows is None else numbers[..., self.rows]


def augment(
    images: Tensor,
    kind: str,
    generator: torch.Generator | None = None,
    crop: Crop = CROP,
    rows: Tensor | None = None,
    total: int = 0,
) -> Tensor:
    """Random transform of each uint8 image (n, C, H, W) on its device; the same shape and type comes back.

    crop: shift by up to 4 pixels with zero padding; crop_flip: and mirror; affine: small rotation, scale and shift;
    standard, for photographs: the window of ``crop``, mirror, brightness, contrast and saturation. Images that are
    ``rows`` of ``total`` come out as they would among all of these.
    """
    random = Draws(len(images), images.device, generator, rows, total)
    if kind == "none":
        return images
    if kind in ("crop", "crop_flip"):
        return _shift(images, 4, kind == "crop_flip", random)
    if kind == "standard":
        return _standard(images, random, crop)
    return _affine(images, random)


def _shift(images: Tensor, pad: int, flip: bool, random: Draws) -> Tensor:
    """Crop of the original size from the padded image, by one gather: no loop and no interpolation."""
    n, channels, height, width = images.shape
    device = images.device
    offset_y = (random() * (2 * pad + 1)).long()[:, None]
    offset_x = (random() * (2 * pad + 1)).long()[:, None]
    rows = torch.arange(height, device=device) + offset_y
    columns = torch.arange(width, device=device).expand(n, width)
    if flip:
        columns = torch.where(random()[:, None] < 0.5, width - 1 - columns, columns)
    columns = columns + offset_x
    padded = F.pad(images, (pad, pad, pad, pad))
    picked = padded.gather(2, rows[:, None, :, None].expand(n, channels, height, width + 2 * pad))
    return picked.gather(3, columns[:, None, None, :].expand(n, channels, height, width))


def _affine(images: Tensor, random: Draws) -> Tensor:
    """Rotation up to 10 degrees, scale 0.9..1.1, shift up to 6 %; bilinear."""

    def uniform(bound: float) -> Tensor:
        return (random() * 2 - 1) * bound

    angle, scale = uniform(math.radians(10)), 1 + uniform(0.1)
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    matrix = torch.stack(
        [torch.stack([cosine, -sine, uniform(0.12)], 1), torch.stack([sine, cosine, uniform(0.12)], 1)], 1
    )
    grid = F.affine_grid(matrix, list(images.shape), align_corners=False)
    return F.grid_sample(images.float(), grid, align_corners=False).round().to(torch.uint8)


CHUNK = 512
"""images transformed at once, so that float copies and grids stay small; results do not depend on it"""


def _standard(images: Tensor, random: Draws, crop: Crop) -> Tensor:
    """Window, mirror and colour of each image; every number is drawn before the first chunk."""
    n = len(images)
    share, shift_x, shift_y, mirror, *factors = random(7)
    width, height = _sides(share, crop, random)
    # Output x in [-1, 1] reads input width * x + shift; |shift| <= 1 - width keeps the window inside the image.
    shift_x, shift_y = (2 * shift_x - 1) * (1 - width), (2 * shift_y - 1) * (1 - height)
    zero, flipped = torch.zeros_like(width), torch.where(mirror < 0.5, -width, width)
    window = torch.stack([flipped, zero, shift_x, zero, height, shift_y], 1).view(n, 2, 3)
    jitter = 0.6 + 0.8 * torch.stack(factors, 1)
    result = torch.empty_like(images, memory_format=torch.contiguous_format)
    for start in range(0, n, CHUNK):
        part = slice(start, start + CHUNK)
        grid = F.affine_grid(window[part], list(images[part].shape), align_corners=False)
        seen = F.grid_sample(images[part].float(), grid, padding_mode="border", align_corners=False)
        result[part] = _recolour(seen, jitter[part]).clamp(0, 255).round().to(torch.uint8)
    return result


def _sides(share: Tensor, crop: Crop, random: Draws) -> tuple[Tensor, Tensor]:
    """width = sqrt(area aspect), height = sqrt(area / aspect) of each window, at most the whole image's 1; a window of
    the image's own shape draws no number for it."""
    area = crop.area[0] + (crop.area[1] - crop.area[0]) * share
    if crop.aspect == CROP.aspect:
        side = area.sqrt()
        return side, side
    least, most = map(math.log, crop.aspect)
    aspect = (least + (most - least) * random()).exp()
    return (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)


def _recolour(images: Tensor, jitter: Tensor) -> Tensor:
    """brightness b, contrast c, saturation s as one map: x -> b (c S x + (1 - c) m), S = s I + (1 - s) 1 g'.

    g are the weights of grey and m the mean grey of the image, which S leaves as it is; where there is one channel
    S = 1. Shapes: (n, C, H, W), (n, 3) -> (n, C, H, W).
    """
    channels = images.shape[1]
    weights = (0.299, 0.587, 0.114) if channels == 3 else (1 / channels,) * channels
    # One number at a time from the host would wait for the device at every step; `full` does not.
    grey = torch.cat([images.new_full((1,), w) for w in weights])
    brightness, contrast, saturation = jitter[:, :, None, None].unbind(1)
    identity = torch.eye(channels, device=images.device)
    colours = brightness * contrast * (saturation * identity + (1 - saturation) * grey)
    mean_grey = (images.mean((2, 3)) @ grey)[:, None, None]
    return torch.baddbmm(brightness * (1 - contrast) * mean_grey, colours, images.flatten(2)).view_as(images)
