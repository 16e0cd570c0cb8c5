"""What comes out of a backbone, found by asking it."""

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
