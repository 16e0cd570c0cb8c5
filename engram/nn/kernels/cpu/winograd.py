"""3x3 convolution with a quarter to a third of the products (Winograd; Lavin and Gray 2016), forward and backward.

An output tile of m x m needs t = m + 2 pixels a side. With matrices A' (m, t), G (t, 3) and B' (t, t)

    Y = A' [ (G g G') * (B' d B) ] A        summed over input channels inside the bracket,

so that each of the t * t positions is a matrix product over all tiles, (tiles, C) @ (C, O). The transposed steps are
the backward pass.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from engram.nn.kernels.cpu import LANES
from engram.nn.kernels.cpu.functions import channels_last
from engram.nn.kernels.cpu.library import Sizes, call

WEIGHTS = {
    3: ((1 / 2, 0, 0), (-1 / 2, -1 / 2, -1 / 2), (-1 / 6, 1 / 6, -1 / 6), (1 / 6, 1 / 3, 2 / 3), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
}
"""G of each m; A and B are in winograd.c"""


class TileSizes(Sizes):
    _fields_ = (
        ("n", ctypes.c_long),
        *((name, ctypes.c_int) for name in ("height", "width", "channels", "outputs", "pad", "side", "threads")),
    )


def tile_side(height: int, width: int) -> int:
    """The m with the fewest products for an output of this size; 0 where an ordinary convolution is no worse."""
    cost = {m: -(-height // m) * -(-width // m) * (m + 2) ** 2 for m in (3, 4)}
    best = min(cost, key=lambda m: cost[m])
    return best if cost[best] < 0.6 * 9 * height * width else 0


def convolution(values: Tensor, layer: nn.Conv2d) -> Tensor:
    """``layer``, 3x3 with stride 1, without its bias; as it is where there is nothing to save.

    Shapes: (n, C, H, W) -> (n, O, H + 2 pad - 2, W + 2 pad - 2)
    """
    pad = int(layer.padding[0])
    side = tile_side(values.shape[2] + 2 * pad - 2, values.shape[3] + 2 * pad - 2)
    if not side or values.shape[1] % LANES or layer.out_channels % LANES:
        return F.conv2d(values, layer.weight, padding=pad)
    result: Tensor = Convolution.apply(values, layer.weight, pad, side)
    return result


def _both_sides(side: int) -> Tensor:
    """G g G' of a filter as one matrix. (t * t, 9)"""
    matrix = torch.tensor(WEIGHTS[side], dtype=torch.float32, device="cpu")
    return torch.kron(matrix, matrix)


class Convolution(torch.autograd.Function):
    """(n, C, H, W), weight (O, C, 3, 3) -> (n, O, H + 2 pad - 2, W + 2 pad - 2), tiles of ``side``"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, pad: int, side: int) -> Tensor:
        x, outputs = channels_last(x), len(weight)
        n, height, width, channels = x.shape
        ctx.side, ctx.sizes = side, TileSizes(n, height, width, channels, outputs, pad, side)
        filters = (_both_sides(side) @ weight.permute(2, 3, 1, 0).reshape(9, -1)).view(-1, channels, outputs)
        y = x.new_empty(n, height + 2 * pad - 2, width + 2 * pad - 2, outputs)
        call("winograd_forward", x, filters, y, sizes=ctx.sizes)
        ctx.save_for_backward(x, filters)
        return y.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, filters = ctx.saved_tensors
        for_x, partial = torch.empty_like(x), ctx.sizes.sums(*filters.shape, dtype=torch.float)
        given = (x, channels_last(gradients[0]), filters.transpose(1, 2).contiguous())
        call("winograd_backward", *given, for_x, partial, sizes=ctx.sizes)
        for_weights = (_both_sides(ctx.side).T @ partial.sum(0).flatten(1)).view(3, 3, *filters.shape[1:])
        return for_x.permute(0, 3, 1, 2), for_weights.permute(3, 2, 0, 1), None, None
