"""Triton kernels for a block of the pointwise nets: LeakyReLU(BatchNorm(x)) with whole channels of a graph dropped.

``x`` (rows, C) float32 has ``positions`` consecutive rows for each graph; ``keep`` (graphs, C) is 0 or 1 / (1 - rate),
and is not read where nothing is dropped; ``counts`` (positions,) says how often each row counts in the statistics, and
is not read where that is once. A slope of 1 is no activation. Tables are those of `map_kernels`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engram.nn.kernels.cuda.map_kernels import _read_table


@triton.jit
def _tile(program, rows, C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr):
    row = program * BLOCK + tl.arange(0, BLOCK)
    channel = tl.arange(0, BLOCK_C)
    inside = (row[:, None] < rows) & (channel[None, :] < C)
    return row, channel, row[:, None].to(tl.int64) * C + channel[None, :], inside


@triton.jit
def _kept(keep, row, channel, inside, positions, C: tl.constexpr, DROPS: tl.constexpr):
    if DROPS:
        return tl.load(keep + (row // positions)[:, None] * C + channel[None, :], inside, other=0.0)
    return tl.where(inside, 1.0, 0.0)


@triton.jit
def _counted(counts, row, positions, COUNTS: tl.constexpr):
    if COUNTS:
        return tl.load(counts + row % positions)[:, None]
    return tl.where(row >= 0, 1.0, 0.0)[:, None]


@triton.jit
def row_moments(
    x, counts, partial, rows, positions,
    C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, COUNTS: tl.constexpr,
):  # fmt: skip
    """Sum and sum of squares of each channel over this program's rows, as they count -> partial (programs, 2, C)."""
    program = tl.program_id(0)
    row, channel, place, inside = _tile(program, rows, C, BLOCK_C, BLOCK)
    value = tl.load(x + place, inside, other=0.0)
    counted = value * _counted(counts, row, positions, COUNTS)
    tl.store(partial + program * 2 * C + channel, tl.sum(counted, 0), channel < C)
    tl.store(partial + program * 2 * C + C + channel, tl.sum(counted * value, 0), channel < C)


@triton.jit
def row_apply(
    x, keep, out, table, rows, positions, slope,
    C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row, channel, place, inside = _tile(tl.program_id(0), rows, C, BLOCK_C, BLOCK)
    scale, shift, _, _ = _read_table(table, channel, C)
    value = tl.load(x + place, inside, other=0.0) * scale + shift
    value = tl.where(value > 0, value, value * slope) * _kept(keep, row, channel, inside, positions, C, DROPS)
    tl.store(out + place, value, inside)


@triton.jit
def row_reduce(
    x, keep, grad, partial, table, rows, positions, slope,
    C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Sums of dy and of dy * x_hat over this program's rows -> partial (programs, 2, C)."""
    program = tl.program_id(0)
    row, channel, place, inside = _tile(program, rows, C, BLOCK_C, BLOCK)
    scale, shift, mean, inverse = _read_table(table, channel, C)
    value = tl.load(x + place, inside, other=0.0)
    change = tl.load(grad + place, inside, other=0.0) * _kept(keep, row, channel, inside, positions, C, DROPS)
    change = tl.where(value * scale + shift > 0, change, change * slope)
    tl.store(partial + program * 2 * C + channel, tl.sum(change, 0), channel < C)
    tl.store(partial + program * 2 * C + C + channel, tl.sum(change * (value - mean) * inverse, 0), channel < C)


@triton.jit
def row_backward(
    x, keep, grad, counts, out, sums, table, rows, positions, slope, total,
    C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, DROPS: tl.constexpr, COUNTS: tl.constexpr,
):  # fmt: skip
    """dx = scale (dy - count (mean(dy) + x_hat mean(dy x_hat))), means over all ``total`` counts"""
    row, channel, place, inside = _tile(tl.program_id(0), rows, C, BLOCK_C, BLOCK)
    known = channel < C
    scale, shift, mean, inverse = _read_table(table, channel, C)
    mean_dy = tl.load(sums + channel, known, other=0.0)[None, :] / total
    mean_dyx = tl.load(sums + C + channel, known, other=0.0)[None, :] / total
    value = tl.load(x + place, inside, other=0.0)
    change = tl.load(grad + place, inside, other=0.0) * _kept(keep, row, channel, inside, positions, C, DROPS)
    change = tl.where(value * scale + shift > 0, change, change * slope)
    common = (mean_dy + (value - mean) * inverse * mean_dyx) * _counted(counts, row, positions, COUNTS)
    tl.store(out + place, scale * (change - common), inside)


@triton.jit
def group_forward(
    x, weights, bias, out, rows, D: tl.constexpr, G: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr
):
    """out[r, g] = x[r, g, :] . weights[g, :] + bias[g], one group for each program in y: (rows, G, D) -> (rows, G)"""
    group = tl.program_id(1)
    row = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * G + group
    column = tl.arange(0, BLOCK_D)
    inside = (row < rows * G)[:, None] & (column < D)[None, :]
    value = tl.load(x + row[:, None].to(tl.int64) * D + column[None, :], inside, other=0.0)
    weight = tl.load(weights + group * D + column, column < D, other=0.0)
    tl.store(out + row, tl.sum(value * weight[None, :], 1) + tl.load(bias + group), row < rows * G)


@triton.jit
def group_backward(
    x, weights, grad, out, partial, rows, D: tl.constexpr, G: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = dy weights, and this program's part of the gradients of weights and bias -> partial (programs, G, D + 1)"""
    group = tl.program_id(1)
    row = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * G + group
    column = tl.arange(0, BLOCK_D)
    inside = (row < rows * G)[:, None] & (column < D)[None, :]
    place = row[:, None].to(tl.int64) * D + column[None, :]
    value = tl.load(x + place, inside, other=0.0)
    weight = tl.load(weights + group * D + column, column < D, other=0.0)
    change = tl.load(grad + row, row < rows * G, other=0.0)
    tl.store(out + place, change[:, None] * weight[None, :], inside)
    start = partial + (tl.program_id(0) * G + group) * (D + 1)
    tl.store(start + column, tl.sum(change[:, None] * value, 0), column < D)
    tl.store(start + D, tl.sum(change, 0))
