"""Dropout of squares of a map: neighbours tell what a single zero would hide."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
