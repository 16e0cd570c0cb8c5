"""What a backbone owes its method, what comes out of one, and whether a head can take it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from engram.errors import EngramError


@runtime_checkable
class Backbone(Protocol):
    """An image encoder: a `torch.nn.Module` that is built as ``Class(image_shape, **settings)``.

    ``image_shape`` is (channels, height, width) of one image, or (features,) where it goes on from frozen features;
    ``settings`` are the keys of a recipe's [backbone] table. A recipe or ``--backbone`` names one of
    `engram.nn.backbones.BACKBONES` or ``package.module:Class``. Images come normalised as the recipe says: no backbone
    does that itself. Every image is encoded by itself (BatchNorm in training apart), so that the order of images and
    the size of a batch do not matter in evaluation mode.

    Shapes: forward takes (n, *image_shape) float and gives (n, *out_shape).
    """

    out_shape: tuple[int, ...]
    """of one image: (features,) for a vector, (channels, height, width) for a map; methods read it to size a head"""

    def forward(self, images: Tensor, /) -> Tensor:
        """(n, *image_shape) -> (n, *out_shape)"""
        ...


def probe_shape(module: nn.Module, image_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Output shape of one image; evaluation mode and no gradient, so nothing is disturbed."""
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            return tuple(module(torch.zeros(1, *image_shape)).shape[1:])
    except RuntimeError as error:
        raise EngramError(
            f"{type(module).__name__} cannot take images of {'x'.join(map(str, image_shape))}: they shrink to nothing; "
            f"use larger images or a backbone with fewer poolings"
        ) from error
    finally:
        module.train(training)


def vector_width(backbone: nn.Module, head: str) -> int:
    """Features of a backbone that gives one vector per image; a map is refused in the name of ``head``."""
    shape: tuple[int, ...] = backbone.out_shape  # type: ignore[assignment]
    if len(shape) != 1:
        raise EngramError(
            f"{head} takes one vector per image but the backbone gives a map of {'x'.join(map(str, shape))}: "
            f"use a backbone that ends in a vector, such as conv4"
        )
    return shape[0]


def map_shape(backbone: nn.Module, head: str) -> tuple[int, int, int]:
    """(channels, height, width) of a backbone that keeps a map; a vector is refused in the name of ``head``."""
    shape: tuple[int, ...] = backbone.out_shape  # type: ignore[assignment]
    if len(shape) != 3:
        raise EngramError(
            f"{head} takes a map per image (channels, height, width) but the backbone gives a vector of "
            f"{'x'.join(map(str, shape))}: use a backbone that keeps its map, such as resnet18_map"
        )
    return shape[0], shape[1], shape[2]


def as_map_shape(out_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(C, h, w) of what a backbone gives; a vector (d,) is a map of one position, (d, 1, 1)."""
    channels, height, width = out_shape if len(out_shape) == 3 else (*out_shape, 1, 1)
    return channels, height, width
