"""What comes out of a backbone, found by asking it, and whether a head can take it."""

from __future__ import annotations

import torch
from torch import nn

from engram.errors import EngramError


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
