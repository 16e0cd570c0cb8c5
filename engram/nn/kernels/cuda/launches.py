"""The kernels as differentiable functions: sizes, buffers and the order of the passes."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from engram.nn.kernels.cuda import map_kernels, row_kernels, stem_kernels
from engram.nn.kernels.serving import Counts

PROGRAMS = 1056
"""eight for each of the 132 multiprocessors of an H100 or H200: enough in flight to wait for memory"""


def _tiles(work: int, block: int, programs: int) -> tuple[int, int]:
    """(programs, tiles of each): at most ``programs``, and tiles a power of two, so that few shapes are compiled."""
    tiles = triton.next_power_of_2(max(1, -(-work // (block * programs))))
    return -(-work // (block * tiles)), tiles


def _table(partial: Tensor, count: int, norm: tuple[Any, ...], channels: int) -> Tensor:
    """Scale, shift, mean and 1 / std (4, C) from partial sums; running statistics move on."""
    gamma, beta, running_mean, running_var, momentum, epsilon, _ = norm
    table = torch.empty(4, channels, device=partial.device)
    grid = (triton.cdiv(channels, 8),)
    moments, moved = (len(partial), count, momentum, epsilon), (running_mean, running_var)
    map_kernels.finish_moments[grid](partial, table, gamma, beta, *moved, *moments, C=channels, BLOCK_C=16, BLOCK=64)
    return table


def _summed(partial: Tensor) -> Tensor:
    """(programs, ...) -> (...), in one small kernel."""
    width = partial[0].numel()
    sums = torch.empty(partial.shape[1:], device=partial.device)
    map_kernels.finish_sums[(triton.cdiv(width, 8),)](partial, sums, len(partial), C=width, BLOCK_C=8, BLOCK=256)
    return sums


class NormPool(torch.autograd.Function):
    """leaky(maxpool2(BatchNorm(x))) of a channels-last map. Saved for the backward pass: map and table."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *norm: Any) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        n, channels, height, width = x.shape
        rows, block_c = n * height * width, triton.next_power_of_2(channels)
        block = 32
        programs, tiles = _tiles(rows, block, PROGRAMS)
        partial = torch.empty(programs, 2, channels, device=x.device)
        map_kernels.map_moments[(programs,)](x, partial, rows, C=channels, BLOCK_C=block_c, BLOCK=block, TILES=tiles)
        table = _table(partial, rows, norm, channels)
        shape = (n, channels, height // 2, width // 2)
        out = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
        windows = n * ((height + 1) // 2) * ((width + 1) // 2)
        tile = 8
        map_kernels.map_apply[(triton.cdiv(windows, tile),)](
            x, out, table, windows, height, width, norm[-1], C=channels, BLOCK_C=block_c, WINDOWS=tile
        )
        ctx.save_for_backward(x, table)
        ctx.slope = norm[-1]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, table = ctx.saved_tensors
        grad = gradients[0].contiguous(memory_format=torch.channels_last)
        n, channels, height, width = x.shape
        block_c = triton.next_power_of_2(channels)
        windows = n * ((height + 1) // 2) * ((width + 1) // 2)
        tile = 8
        programs, tiles = _tiles(windows, tile, PROGRAMS)
        partial = torch.empty(programs, 2, channels, device=x.device)
        sizes = {"C": channels, "BLOCK_C": block_c, "WINDOWS": tile}
        map_kernels.map_reduce[(programs,)](
            x, grad, partial, table, windows, height, width, ctx.slope, TILES=tiles, **sizes
        )
        sums = _summed(partial)
        out = torch.empty_like(x)
        map_kernels.map_backward[(triton.cdiv(windows, tile),)](
            x, grad, out, sums, table, windows, height, width, ctx.slope, n * height * width, **sizes
        )
        return out, sums[1], sums[0], None, None, None, None, None


class NormRows(torch.autograd.Function):
    """`norm_activate`: rows (R, C) and what is kept of each graph's channels (graphs, C), or nothing dropped."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor | None, counts: Counts | None, positions: int, *norm: Any) -> Tensor:
        x = x.contiguous()
        rows, channels = x.shape
        sizes = _row_sizes(channels, keep, counts)
        programs = triton.cdiv(rows, sizes["BLOCK"])
        each, total = (x, rows) if counts is None else (counts.each, rows // positions * counts.total)
        partial = torch.empty(programs, 2, channels, device=x.device)
        moments = {key: sizes[key] for key in ("C", "BLOCK_C", "BLOCK", "COUNTS")}
        row_kernels.row_moments[(programs,)](x, each, partial, rows, positions, **moments)
        table = _table(partial, total, norm, channels)
        out, kept = torch.empty_like(x), x if keep is None else keep
        applied = {key: value for key, value in sizes.items() if key != "COUNTS"}
        row_kernels.row_apply[(programs,)](x, kept, out, table, rows, positions, norm[-1], **applied)
        ctx.save_for_backward(x, kept, each, table)
        ctx.slope, ctx.positions, ctx.sizes, ctx.total = norm[-1], positions, sizes, total
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, kept, each, table = ctx.saved_tensors
        grad = gradients[0].contiguous()
        programs = triton.cdiv(len(x), ctx.sizes["BLOCK"])
        partial = torch.empty(programs, *table[:2].shape, device=x.device)
        where = (table, len(x), ctx.positions, ctx.slope)
        reduced = {key: value for key, value in ctx.sizes.items() if key != "COUNTS"}
        row_kernels.row_reduce[(programs,)](x, kept, grad, partial, *where, **reduced)
        sums, out = _summed(partial), torch.empty_like(x)
        row_kernels.row_backward[(programs,)](x, kept, grad, each, out, sums, *where, ctx.total, **ctx.sizes)
        return out, None, None, None, sums[1], sums[0], None, None, None, None, None


def _row_sizes(channels: int, keep: Tensor | None, counts: Counts | None) -> dict[str, Any]:
    block_c = max(16, triton.next_power_of_2(channels))
    block = max(8, 4096 // block_c)
    return {
        "C": channels,
        "BLOCK_C": block_c,
        "BLOCK": block,
        "DROPS": keep is not None,
        "COUNTS": counts is not None,
    }


class GroupProduct(torch.autograd.Function):
    """`group_product`: x (R, G * D), weights (G, D), bias (G,) -> (R, G)"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x, (groups, width) = x.contiguous(), weight.shape
        out = torch.empty(len(x), groups, device=x.device)
        sizes = {"D": width, "G": groups, "BLOCK_D": triton.next_power_of_2(width), "BLOCK": 32}
        row_kernels.group_forward[(triton.cdiv(len(x), 32), groups)](x, weight, bias, out, len(x), **sizes)
        ctx.save_for_backward(x, weight)
        ctx.sizes = sizes
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        (groups, width), programs = weight.shape, triton.cdiv(len(x), 32)
        out, partial = torch.empty_like(x), torch.empty(programs, groups, width + 1, device=x.device)
        grad = gradients[0].contiguous()
        row_kernels.group_backward[(programs, groups)](x, weight, grad, out, partial, len(x), **ctx.sizes)
        sums = _summed(partial)
        return out, sums[:, :-1], sums[:, -1]


class Stem(torch.autograd.Function):
    """`first_stage`. Saved for the backward pass: the neighbourhoods of the pixels; images have no gradient."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor, colours: Tensor, weight: Tensor, *norm: Any) -> Tensor:
        n, channels_in, height, width = pixels.shape
        channels, matrix = len(weight), _matrix(weight)
        windows = n * ((height + 1) // 2) * ((width + 1) // 2)
        patches = torch.empty(windows, 4, len(matrix), dtype=matrix.dtype, device=pixels.device)
        stem_kernels.stem_patches[(triton.cdiv(4 * windows, 128),)](
            pixels.contiguous(), colours, patches, 4 * windows, height, width,
            CHANNELS=channels_in, K=len(matrix), BLOCK=128,
        )  # fmt: skip
        gram, product = _gram(patches, matrix)
        moments = torch.stack([product[9 * channels_in], (matrix * product).sum(0)])
        table = _table(moments[None], n * height * width, norm, channels)
        sizes = _sizes(matrix, 32)
        shape = (n, channels, height // 2, width // 2)
        out = torch.empty(shape, dtype=matrix.dtype, device=pixels.device, memory_format=torch.channels_last)
        stem_kernels.stem_apply[(triton.cdiv(windows, sizes["WINDOWS"]),)](
            patches, matrix, out, table, windows, height, width, norm[-1], **sizes
        )
        ctx.save_for_backward(patches, matrix, table, gram, product)
        ctx.slope, ctx.pixels_shape, ctx.weight_shape = norm[-1], pixels.shape, weight.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        patches, matrix, table, gram, product = ctx.saved_tensors
        grad = gradients[0].contiguous(memory_format=torch.channels_last)
        n, channels_in, height, width = ctx.pixels_shape
        windows, channels, used = len(patches), ctx.weight_shape[0], 9 * channels_in
        sizes = {**_sizes(matrix, 16), "num_warps": 2}
        programs, tiles = _tiles(windows, sizes["WINDOWS"], 2 * PROGRAMS)
        partial = torch.empty(programs, 2, channels, device=grad.device)
        products = torch.empty(programs, len(matrix), channels, device=grad.device)
        stem_kernels.stem_backward[(programs,)](
            patches, matrix, grad, partial, products, table, windows, height, width, ctx.slope, TILES=tiles, **sizes
        )
        sums, count = _summed(partial), n * height * width
        scale, _, mean, inverse = table
        slant = inverse * sums[1] / count
        offset = sums[0] / count - mean * slant
        # d(convolution) = scale (dy - offset - convolution slant), and the sums of the last two are known
        for_weight = scale * (_summed(products) - gram[used][:, None] * offset - product * slant)
        return None, None, for_weight[:used].T.reshape(ctx.weight_shape), sums[1], sums[0], *[None] * 5


def _gram(patches: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """G = P'P (K, K) and G W (K, C), in full float32."""
    rows, k = patches.shape[0] * 4, len(matrix)
    programs, tiles = _tiles(rows, 128, PROGRAMS)
    partial = torch.empty(programs, k, k, device=patches.device)
    stem_kernels.stem_gram[(programs,)](patches, partial, rows, K=k, BLOCK=128, TILES=tiles, num_stages=1)
    gram = _summed(partial)
    return gram, (gram[:, :, None] * matrix.float()).sum(1)


def _matrix(weight: Tensor) -> Tensor:
    """(C, c, 3, 3) -> (K, C), rows k = 9 channel + 3 row + column, zeros below, as matrix units take 32 rows."""
    # Off the GPU the kernels run in an interpreter, which knows no bf16 product.
    flat = weight.detach().reshape(len(weight), -1).T.to(torch.bfloat16 if weight.is_cuda else torch.float32)
    rows = max(32, triton.next_power_of_2(len(flat)))
    return torch.nn.functional.pad(flat, (0, 0, 0, rows - len(flat))).contiguous()


def _sizes(matrix: Tensor, windows: int) -> dict[str, int]:
    """Constants of the kernels; one stage, as loops that feed matrix units are not safely pipelined by the compiler."""
    block_c = max(16, triton.next_power_of_2(matrix.shape[1]))
    return {"K": len(matrix), "C": matrix.shape[1], "BLOCK_C": block_c, "WINDOWS": windows, "num_stages": 1}
