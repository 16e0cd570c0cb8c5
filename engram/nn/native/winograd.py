"""3x3 convolution with a quarter to a third of the products (Winograd; Lavin and Gray 2016), forward and backward.

An output tile of m x m needs t = m + 2 pixels a side. With matrices A' (m, t), G (t, 3) and B' (t, t)

    Y = A' [ (G g G') * (B' d B) ] A        summed over input channels inside the bracket,

so that each of the t * t positions is a matrix product over all tiles, (tiles, C) @ (C, O). The transposed steps are
the backward pass.
"""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import combinations
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from engram.nn.native import LANES
from engram.nn.native.functions import channels_last
from engram.nn.native.library import Sizes, call

POINTS = (0, 1, -1, 2, -2)
"""where the polynomials of the transform are evaluated, besides infinity: the first t - 1 of them"""


class TileSizes(Sizes):
    _fields_ = (
        ("n", ctypes.c_long),
        *((name, ctypes.c_int) for name in ("height", "width", "channels", "outputs", "pad", "side", "threads")),
    )


@cache
def transforms(m: int) -> tuple[Tensor, Tensor, Tensor]:
    """A' (m, t), G (t, 3), B' (t, t) for the points above and infinity (Cook-Toom)."""
    points = POINTS[: m + 1]
    output = [[float(p**k) for p in points] + [float(k == m - 1)] for k in range(m)]
    scales = [prod(p - q for q in points if q != p) for p in points]
    weight = [[p**k / scale for k in range(3)] for p, scale in zip(points, scales, strict=True)] + [[0.0, 0.0, 1.0]]
    pixels = [[*_coefficients([q for q in points if q != p]), 0.0] for p in points] + [_coefficients(points)]
    return torch.tensor(output), torch.tensor(weight), torch.tensor(pixels)


def _coefficients(roots: Any) -> list[float]:
    """Of the product of (x - root), from the constant on."""
    n = len(roots)
    return [float((-1) ** (n - k) * sum(map(prod, combinations(roots, n - k)))) for k in range(n + 1)]


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


class Convolution(torch.autograd.Function):
    """(n, C, H, W), weight (O, C, 3, 3) -> (n, O, H + 2 pad - 2, W + 2 pad - 2), tiles of ``side``"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, pad: int, side: int) -> Tensor:
        x, outputs = channels_last(x), len(weight)
        n, height, width, channels = x.shape
        ctx.side, ctx.sizes = side, TileSizes(n, height, width, channels, outputs, pad, side)
        output, for_weight, pixels = transforms(side)
        both = torch.kron(for_weight, for_weight)
        filters = (both @ weight.permute(2, 3, 1, 0).reshape(9, -1)).view(-1, channels, outputs)
        y = x.new_empty(n, height + 2 * pad - 2, width + 2 * pad - 2, outputs)
        call(f"winograd_forward_{side}", x, filters, pixels, output, y, sizes=ctx.sizes)
        ctx.save_for_backward(x, filters)
        return y.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, filters = ctx.saved_tensors
        output, for_weight, pixels = transforms(ctx.side)
        both, for_x = torch.kron(for_weight, for_weight), torch.empty_like(x)
        partial = ctx.sizes.sums(*filters.shape, dtype=torch.float)
        given = (x, channels_last(gradients[0]), filters.transpose(1, 2).contiguous())
        matrices = (pixels, output.T.contiguous(), pixels.T.contiguous())
        call(f"winograd_backward_{ctx.side}", *given, *matrices, for_x, partial, sizes=ctx.sizes)
        for_weights = (both.T @ partial.sum(0).flatten(1)).view(3, 3, *filters.shape[1:])
        return for_x.permute(0, 3, 1, 2), for_weights.permute(3, 2, 0, 1), None, None
