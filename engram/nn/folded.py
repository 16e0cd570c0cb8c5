"""An encoder for answers alone: BatchNorm in evaluation mode is a scale and a shift, which a convolution can carry."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


def folded(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode with every BatchNorm that follows a convolution folded into it: the same answers up to
    rounding for about three quarters of the time.

        gamma (W x - mean) / sqrt(var + eps) + beta = W' x + b'
    """
    copied = copy.deepcopy(module).eval()
    for part in copied.modules():
        layers = list(part) if isinstance(part, nn.Sequential) else []
        for place, (first, second) in enumerate(pairwise(layers)):
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d) and second.track_running_stats:
                part[place], part[place + 1] = fuse_conv_bn_eval(first, second), nn.Identity()  # type: ignore[operator]
    return copied.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
