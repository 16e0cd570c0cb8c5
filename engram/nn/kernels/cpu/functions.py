"""The kernels as differentiable functions: sizes, buffers and the order of the passes. Maps are channels-last."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from engram.nn.kernels.cpu.library import Sizes, call
from engram.nn.kernels.serving import Counts


class StemSizes(Sizes):
    _fields_ = (
        ("n", ctypes.c_long),
        *((name, ctypes.c_int) for name in ("colours", "height", "width", "outputs", "threads")),
        ("slope", ctypes.c_float),
    )


class NormSizes(Sizes):
    _fields_ = (
        ("rows", ctypes.c_long),
        *((name, ctypes.c_int) for name in ("height", "width", "channels", "positions", "threads")),
        ("slope", ctypes.c_float),
    )


def channels_last(values: Tensor) -> Tensor:
    """(n, C, H, W) -> (n, H, W, C), contiguous"""
    return values.permute(0, 2, 3, 1).contiguous()


def together(maps: list[Tensor]) -> Tensor:
    """Maps (n, C, H, W) of several tasks, one after the other; a single one as it is."""
    return maps[0] if len(maps) == 1 else torch.cat(maps)


def refuse_one(count: int) -> None:
    """As PyTorch does: the variance of one value is 0, and what is divided by it is rounding."""
    if count < 2:
        raise ValueError(f"BatchNorm was given {count} value per channel, and training needs more than 1")


def refuse_overflow(sums: Tensor) -> None:
    """Sums of squares in float may not be finite: PyTorch, which squares in double, knows better."""
    if not bool(sums.isfinite().all()):
        raise OverflowError("sums of squares are not finite in float32")


def patch_moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (9c,) and covariance (9c, 9c) in double of the 3x3 patches of (n, c, H, W), zeros outside."""
    n, colours, height, width = images.shape
    k = 9 * colours
    sizes = StemSizes(n, colours, height, width)
    partial = sizes.sums(k + 1, k)
    call("patch_moments", images, partial, sizes=sizes)
    refuse_overflow(partial)
    sums, products = partial.sum(0).div_(n * height * width).split([1, k])
    return sums[0], products + products.triu(1).T - sums.T * sums


class Stem(torch.autograd.Function):
    """leaky(maxpool2(3x3 convolution)) of images (n, c, H, W), which have no gradient.

    Shapes: weight (9c, C), bias (C,) -> (n, C, H // 2, W // 2)
    """

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, slope: float) -> Tensor:
        n, colours, height, width = images.shape
        ctx.sizes = StemSizes(n, colours, height, width, weight.shape[1], slope=slope)
        out = images.new_empty(n, height // 2, width // 2, weight.shape[1])
        place = out.new_empty(out.shape, dtype=torch.uint8)
        call("stem_forward", images, weight.contiguous(), bias, out, place, sizes=ctx.sizes)
        ctx.save_for_backward(images, out, place)
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        images, out, place = ctx.saved_tensors
        partial = ctx.sizes.sums(9 * images.shape[1] + 1, out.shape[3], dtype=torch.float)
        call("stem_backward", images, out, place, channels_last(gradients[0]), partial, sizes=ctx.sizes)
        sums = partial.sum(0)
        return None, sums[:-1], sums[-1], None


class _Statistics:
    """Batch statistics of rows (R, C), and what they make of values and of sums of gradients."""

    def __init__(
        self, rows: Tensor, counts: Tensor | None, norm: tuple[Any, ...], sizes: NormSizes, total: int
    ) -> None:
        gamma, beta, running_mean, running_var, momentum, epsilon, _ = norm
        refuse_one(total)
        flat = NormSizes(rows.numel() // rows.shape[-1], 0, 0, rows.shape[-1], sizes.positions)
        partial = flat.sums(2, rows.shape[-1])
        first = rows.view(-1, rows.shape[-1])[0]
        call("rows_sums", rows, first, counts, None, None, None, None, partial, sizes=flat)  # around the first row
        if counts is None:
            refuse_overflow(partial)
        shifted, squares = partial.sum(0) / total
        mean, variance = shifted + first, squares - shifted.square()
        self.inverse, self.mean, self.total = torch.rsqrt(variance + epsilon), mean, total
        scale = gamma * self.inverse
        self.scale, self.shift = scale.float(), (beta - mean * scale).float()
        running_mean.lerp_(mean.float(), momentum)
        running_var.lerp_((variance * (total / (total - 1))).float(), momentum)

    def slopes(self, partial: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients of gamma and beta; slant and offset of dx = scale dy + slant x + offset."""
        for_beta, products = partial.sum(0)
        for_gamma = products * self.inverse
        slant = -self.scale * self.inverse * for_gamma / self.total
        offset = -self.scale * for_beta / self.total - slant * self.mean
        return for_gamma.float(), for_beta.float(), slant.float(), offset.float()


class NormPool(torch.autograd.Function):
    """leaky(maxpool2(BatchNorm(x + bias))); ``bias`` (C,) or None. (n, C, H, W) -> (n, C, H // 2, W // 2)

    ``x`` is a map that only this layer reads: the largest of a step, so its gradient takes its place.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, *norm: Any) -> Tensor:
        x = channels_last(x)
        n, height, width, channels = x.shape
        sizes = NormSizes(n, height, width, channels, 1, slope=norm[-1])
        statistics = _Statistics(x, None, norm, sizes, n * height * width)
        if bias is not None:
            norm[2].add_(bias, alpha=norm[4])
        ctx.bias = bias
        out = x.new_empty(n, height // 2, width // 2, channels)
        place = out.new_empty(out.shape, dtype=torch.uint8)
        call("pool_forward", x, statistics.scale, statistics.shift, out, place, sizes=sizes)
        ctx.save_for_backward(x, out, place)
        ctx.sizes, ctx.statistics, ctx.spent = sizes, statistics, False
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, out, place = ctx.saved_tensors
        if ctx.spent:
            raise RuntimeError("a map was written over by its gradient: go back through these layers once")
        ctx.spent = True
        grad, partial = channels_last(gradients[0]), ctx.sizes.sums(2, x.shape[3])
        call("pool_sums", x, out, place, grad, ctx.statistics.mean.float(), partial, sizes=ctx.sizes)
        for_gamma, for_beta, slant, offset = ctx.statistics.slopes(partial)
        call("pool_backward", x, out, place, grad, ctx.statistics.scale, slant, offset, x, sizes=ctx.sizes)
        for_bias = None if ctx.bias is None else torch.zeros_like(ctx.bias)
        return x.permute(0, 3, 1, 2), for_bias, for_gamma, for_beta, *[None] * 5


class NormRows(torch.autograd.Function):
    """`norm_activate`: rows (R, C), ``keep`` (graphs, C) or None, ``positions`` rows to a graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor | None, counts: Counts | None, positions: int, *norm: Any) -> Tensor:
        x = x.contiguous()
        rows, channels = x.shape
        sizes = NormSizes(rows, 0, 0, channels, positions, slope=norm[-1])
        each, total = (None, rows) if counts is None else (counts.each, rows // positions * counts.total)
        statistics, out = _Statistics(x, each, norm, sizes, total), torch.empty_like(x)
        call("rows_forward", x, keep, statistics.scale, statistics.shift, out, sizes=sizes)
        ctx.save_for_backward(x, keep, each)
        ctx.sizes, ctx.statistics = sizes, statistics
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, keep, counts = ctx.saved_tensors
        statistics, partial, for_x = ctx.statistics, ctx.sizes.sums(2, x.shape[1]), torch.empty_like(x)
        given = (keep, statistics.scale, statistics.shift, gradients[0].contiguous())
        call("rows_sums", x, statistics.mean.float(), None, *given, partial, sizes=ctx.sizes)
        for_gamma, for_beta, slant, offset = statistics.slopes(partial)
        call("rows_backward", x, *given, counts, slant, offset, for_x, sizes=ctx.sizes)
        return for_x, None, None, None, for_gamma, for_beta, *[None] * 5
