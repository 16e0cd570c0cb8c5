"""Weights in fewer bits, for files that are shared: half precision, or eight bits and a scale for each row.

    w ~ scale_row * q,  scale_row = max |w_row| / 127,  q a whole number from -127 to 127

The largest error of a row is half its scale. Small tensors (biases, BatchNorm) stay in half precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

Bits = Literal[8, 16]
SCALE = ":scale"
"""ends the name of a tensor that holds the scales of another"""
SMALLEST = 4096
"""numbers of a tensor that is worth eight bits"""


def rounded(weights: Mapping[str, Tensor], bits: Bits = 16) -> dict[str, Tensor]:
    """The same names, and for eight bits one more with the scales of each rounded matrix. Whole numbers stay."""
    result: dict[str, Tensor] = {}
    for name, value in weights.items():
        if not value.is_floating_point():
            result[name] = value
        elif bits == 16 or value.dim() < 2 or value.numel() < SMALLEST:
            result[name] = value.half()
        else:
            rows = value.float().flatten(1)
            scale = rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
            result[name] = (rows / scale).round().to(torch.int8).view(value.shape)
            result[name + SCALE] = scale[:, 0]
    return result


def restored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo the eight bits: what has scales is multiplied by them; all else is left as it is."""
    result = {name: value for name, value in tensors.items() if not name.endswith(SCALE)}
    for name in tensors.keys() - result.keys():
        of = name.removesuffix(SCALE)
        if of not in result or tensors[name].shape != result[of].shape[:1]:
            raise ValueError(f"{name} are scales of no tensor")
        result[of] = result[of].float() * tensors[name].view(-1, *[1] * (result[of].dim() - 1))
    return result
