"""What a backbone owes its method."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor


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
