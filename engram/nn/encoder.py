"""Pixels to features: normalisation, precision and memory layout around a backbone, and one for answers alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from engram.errors import EngramError
from engram.nn.kernels.pytorch import compiled, may_compile


class Encoder(nn.Module):
    """uint8 images -> (x / 255 - mean) / std -> backbone -> float32 features; float input passes unnormalised.

    With ``precision="bf16"`` the backbone runs under autocast in channels-last layout; what follows sees float32.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, backbone: nn.Module, mean: Sequence[float], std: Sequence[float], precision: str = "fp32"
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.precision = precision
        self.out_shape: tuple[int, ...] = backbone.out_shape  # type: ignore[assignment]
        self.film_widths: tuple[int, ...] = getattr(backbone, "film_widths", ())
        """channels of the layers a method may scale and shift; most backbones have none"""
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor, *conditions: Tensor) -> Tensor:
        """(n, C, H, W) -> (n, *out_shape); ``conditions`` go to the backbone as they are."""
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            through = compiled(Encoder._pass) if may_compile(images, self.backbone) else Encoder._pass
            features: Tensor = through(self, images, *conditions)
        return features.float()

    def _pass(self, images: Tensor, *conditions: Tensor) -> Tensor:
        if images.dtype == torch.uint8:
            # One multiply-add per pixel: (x / 255 - mean) / std with the constants folded.
            scale, shift = 1 / (255 * self.std), -self.mean / self.std
            if hasattr(self.backbone, "from_pixels"):
                return self.backbone.from_pixels(images, scale, shift)  # type: ignore[operator]
            images = images.float() * scale + shift
        else:
            images = images.float()  # features may be stored in half precision
        if images.ndim == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        return self.backbone(images, *conditions)


class Mirrored(nn.Module):
    """The mean of what an encoder sees in a picture and in its mirror image, whose map is turned back.

        f(x) = (e(x) + e(mirror(x))) / 2

    Shapes: (n, C, H, W) -> (n, *out_shape)
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.out_shape: tuple[int, ...] = encoder.out_shape  # type: ignore[assignment]

    def forward(self, images: Tensor) -> Tensor:
        mirrored: Tensor = self.encoder(images.flip(-1))
        return (self.encoder(images) + (mirrored.flip(-1) if mirrored.ndim == 4 else mirrored)) / 2


class Windowed(nn.Module):
    """What an encoder sees in the middle ``crop`` x ``crop`` pixels of images, enlarged to ``size`` x ``size``.

    Things look smaller in whole images than in the random crops an encoder has learnt from; this makes up for it
    (Touvron et al., Fixing the train-test resolution discrepancy, NeurIPS 2019).

    Shapes: (n, C, H, W) -> (n, *out_shape)
    """

    def __init__(self, encoder: nn.Module, crop: int, size: int) -> None:
        super().__init__()
        self.encoder, self.crop, self.size = encoder, crop, size
        self.out_shape: tuple[int, ...] = encoder.out_shape  # type: ignore[assignment]

    def forward(self, images: Tensor) -> Tensor:
        top, left = ((side - self.crop) // 2 for side in images.shape[2:])
        middle = images[..., top : top + self.crop, left : left + self.crop].float()
        middle = F.interpolate(middle, (self.size, self.size), mode="bilinear", antialias=True).round()
        features: Tensor = self.encoder(middle.to(images.dtype))
        if features.shape[1:] != self.out_shape:
            seen, known = ("x".join(map(str, shape)) for shape in (features.shape[1:], self.out_shape))
            raise EngramError(f"images of {self.size} pixels give {seen} features, not {known}: take another size")
        return features


def folded(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode with every BatchNorm that follows a convolution folded into it, where it is a scale and
    a shift: the same answers up to rounding for about three quarters of the time.

        gamma (W x - mean) / sqrt(var + eps) + beta = W' x + b'
    """
    copied = copy.deepcopy(module).eval()
    for part in copied.modules():
        layers = list(part) if isinstance(part, nn.Sequential) else []
        for place, (first, second) in enumerate(pairwise(layers)):
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d) and second.track_running_stats:
                part[place], part[place + 1] = fuse_conv_bn_eval(first, second), nn.Identity()  # type: ignore[operator]
    return copied.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
