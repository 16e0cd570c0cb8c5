"""BatchNorm of the images at hand and the pooling after it, in few passes over the map, twice differentiable.

With a positive factor both are monotone, so the largest of a window may be taken before it is normalised:

    y = (p - mean) r,   p = maxpool2(x),   r = 1 / sqrt(variance + eps)

with mean and variance of all N values of a channel. Only they read the whole map. PyTorch's second derivative of
BatchNorm makes about twenty passes over it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Moments = tuple[Tensor, Tensor, Tensor]
"""y, its mean and its variance"""


def pooled_norm(x: Tensor, eps: float, ceil: bool) -> Moments:
    """y of a map on a CPU, not under vmap; its moments have no gradient. (n, C, H, W) -> (n, C, H / 2, W / 2)"""
    y, _, mean, inverse = _Forward.apply(x, eps, ceil)
    return y, mean, inverse.square().reciprocal() - eps


def _wide(values: Tensor) -> Tensor:
    return values[:, None, None]


def _sum(values: Tensor) -> Tensor:
    return values.sum((0, 2, 3))


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, eps: float, ceil: bool) -> Any:
        mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
        pooled, places = F.max_pool2d(x, 2, ceil_mode=ceil, return_indices=True)
        inverse = torch.rsqrt(variance + eps)
        return (pooled - _wide(mean)) * _wide(inverse), places, mean, inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.ceil = inputs[2]
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], *output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _Backward.apply(gradients[0], *ctx.saved_tensors, ctx.ceil), None, None


class _Backward(torch.autograd.Function):
    """dx = scatter(r dy) + a x + c with a = -r^2 sum(dy y) / N and c = -r sum(dy) / N - a mean."""

    @staticmethod
    def forward(dy: Tensor, x: Tensor, y: Tensor, places: Tensor, mean: Tensor, inverse: Tensor, ceil: bool) -> Tensor:
        count = x.numel() // len(mean)
        slant = -inverse.square() * _sum(dy * y) / count
        offset = -inverse * _sum(dy) / count - slant * mean
        return _scatter(dy * _wide(inverse), x, places, ceil).addcmul_(x, _wide(slant)).add_(_wide(offset))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.ceil = inputs[-1]
        ctx.save_for_backward(*inputs[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, u: Tensor) -> Any:
        """Of <u, dx> = r sum(dy u_p) - r sum(dy) sum(u) / N - r^3 sum(dy (p - mean)) sum(u (x - mean)) / N to dy and x.

        u_p is u at the places of p; mean and r are functions of x too.
        """
        dy, x, y, places, mean, inverse = ctx.saved_tensors
        count = x.numel() // len(mean)
        at_places = u.flatten(2).gather(2, places.flatten(2)).view_as(dy)
        ones, products = _sum(u), _sum(u * x)
        centred = products - mean * ones
        first, second = _sum(dy), _sum(dy * y)
        for_dy = _wide(inverse) * (at_places - _wide(ones / count) - y * _wide(inverse * centred / count))
        cube = inverse.pow(3)
        to_mean = (cube * first * centred + inverse.square() * second * ones) / count
        bracket = _sum(dy * at_places) - ones * first / count - 3 * inverse * second * centred / count
        slant = -cube * bracket / count
        for_x = _scatter(dy * _wide(-cube * centred / count), x, places, ctx.ceil)
        for_x.addcmul_(x, _wide(slant)).addcmul_(u, _wide(-inverse.square() * second / count))
        return for_dy, for_x.add_(_wide(to_mean / count - slant * mean)), *[None] * 5


def _scatter(values: Tensor, like: Tensor, places: Tensor, ceil: bool) -> Tensor:
    """Zeros like the map, but for the values at their places."""
    window: Any = ([2, 2], [2, 2], [0, 0], [1, 1], ceil)
    return torch.ops.aten.max_pool2d_with_indices_backward(values, like, *window, places)
