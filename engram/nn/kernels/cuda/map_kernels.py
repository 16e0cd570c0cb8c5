"""Triton kernels for the first stages of an encoder: BatchNorm, 2x2 max pooling and LeakyReLU in one pass.

Maps are channels-last, so pixel p of channel c lies at p * C + c. A program works on a tile of WINDOWS pooling windows
and all channels. Nothing but the pooled map is kept: the backward kernels compute the normalised values anew from the
input, which costs a read of the map and saves two writes of it. Sums over a program's tiles go to a row of ``partial``.

``table`` (4, C) float32 holds scale = gamma / std, shift = beta - mean * scale, mean and 1 / std of each channel.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def map_moments(x, partial, rows, C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr, TILES: tl.constexpr):
    """Sum and sum of squares of each channel over this program's rows: map (rows, C) -> partial (programs, 2, C)."""
    program = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    total = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    squares = tl.zeros((BLOCK, BLOCK_C), tl.float32)
    for tile in range(TILES):
        row = (program * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        inside = (row[:, None] < rows) & (channel[None, :] < C)
        value = tl.load(x + row[:, None].to(tl.int64) * C + channel[None, :], inside, other=0.0).to(tl.float32)
        total += value
        squares += value * value
    tl.store(partial + program * 2 * C + channel, tl.sum(total, 0), channel < C)
    tl.store(partial + program * 2 * C + C + channel, tl.sum(squares, 0), channel < C)


@triton.jit
def finish_moments(
    partial, table, gamma, beta, running_mean, running_var, programs, count, momentum, epsilon,
    C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Moments from the partial sums, the table of each channel, and the running statistics moved on."""
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    known = channel < C
    total = tl.zeros((BLOCK_C,), tl.float32)
    squares = tl.zeros((BLOCK_C,), tl.float32)
    for start in range(0, programs, BLOCK):
        row = start + tl.arange(0, BLOCK)
        inside = (row[:, None] < programs) & known[None, :]
        place = partial + row[:, None] * 2 * C + channel[None, :]
        total += tl.sum(tl.load(place, inside, other=0.0), 0)
        squares += tl.sum(tl.load(place + C, inside, other=0.0), 0)
    mean = total / count
    variance = tl.maximum(squares / count - mean * mean, 0.0)
    inverse = 1.0 / tl.sqrt(variance + epsilon)
    scale = tl.load(gamma + channel, known, other=0.0) * inverse
    tl.store(table + channel, scale, known)
    tl.store(table + C + channel, tl.load(beta + channel, known, other=0.0) - mean * scale, known)
    tl.store(table + 2 * C + channel, mean, known)
    tl.store(table + 3 * C + channel, inverse, known)
    old_mean = tl.load(running_mean + channel, known, other=0.0)
    old_var = tl.load(running_var + channel, known, other=0.0)
    tl.store(running_mean + channel, old_mean + momentum * (mean - old_mean), known)
    tl.store(running_var + channel, old_var + momentum * (variance * count / (count - 1) - old_var), known)


@triton.jit
def _window(index, height, width):
    """Image, top row and left column of pooling windows; those cut off at an odd edge are counted too."""
    across = (width + 1) // 2
    down = (height + 1) // 2
    image = index // (across * down)
    rest = index - image * across * down
    return image, 2 * (rest // across), 2 * (rest % across)


@triton.jit
def _pixel(x, image, top, left, channel, height, width, valid, C: tl.constexpr, CORNER: tl.constexpr):
    """Pixel CORNER (0..3, row by row) of each window: (WINDOWS, BLOCK_C), where it lies, and whether it exists."""
    row = top + CORNER // 2
    column = left + CORNER % 2
    inside = valid & (row < height) & (column < width)
    place = ((image * height + row) * width + column)[:, None].to(tl.int64) * C + channel[None, :]
    mask = inside[:, None] & (channel[None, :] < C)
    return tl.load(x + place, mask, other=0.0).to(tl.float32), place, mask


@triton.jit
def _read_table(table, channel, C: tl.constexpr):
    known = channel < C
    scale = tl.load(table + channel, known, other=0.0)[None, :]
    shift = tl.load(table + C + channel, known, other=0.0)[None, :]
    mean = tl.load(table + 2 * C + channel, known, other=0.0)[None, :]
    inverse = tl.load(table + 3 * C + channel, known, other=0.0)[None, :]
    return scale, shift, mean, inverse


@triton.jit
def map_apply(
    x, out, table, windows, height, width, slope, C: tl.constexpr, BLOCK_C: tl.constexpr, WINDOWS: tl.constexpr
):
    """leaky(max over the window of scale x + shift): map (n, H, W, C) -> (n, H // 2, W // 2, C)."""
    channel = tl.arange(0, BLOCK_C)
    scale, shift, _, _ = _read_table(table, channel, C)
    index = tl.program_id(0) * WINDOWS + tl.arange(0, WINDOWS)
    valid = index < windows
    image, top, left = _window(index, height, width)
    best = _pixel(x, image, top, left, channel, height, width, valid, C, 0)[0] * scale + shift
    best = tl.maximum(best, _pixel(x, image, top, left, channel, height, width, valid, C, 1)[0] * scale + shift)
    best = tl.maximum(best, _pixel(x, image, top, left, channel, height, width, valid, C, 2)[0] * scale + shift)
    best = tl.maximum(best, _pixel(x, image, top, left, channel, height, width, valid, C, 3)[0] * scale + shift)
    best = tl.where(best > 0, best, best * slope)
    place, mask = _pooled_place(image, top, left, channel, height, width, valid, C)
    tl.store(out + place, best.to(out.dtype.element_ty), mask)


@triton.jit
def _pooled_place(image, top, left, channel, height, width, valid, C: tl.constexpr):
    """Where a window lies in the pooled map; windows cut off at an odd edge have no place."""
    whole = valid & (top + 1 < height) & (left + 1 < width)
    pooled = (image * (height // 2) + top // 2) * (width // 2) + left // 2
    place = pooled[:, None].to(tl.int64) * C + channel[None, :]
    return place, whole[:, None] & (channel[None, :] < C)


@triton.jit
def _winner(a, b, c, d, scale, shift, grad, slope):
    """Gradient at the largest of four normalised pixels, which one it is (the first of equals), and its raw value."""
    best = a * scale + shift
    value = a
    which = tl.zeros_like(a).to(tl.int32)
    for_b = b * scale + shift
    better = for_b > best
    best = tl.where(better, for_b, best)
    value = tl.where(better, b, value)
    which = tl.where(better, 1, which)
    for_c = c * scale + shift
    better = for_c > best
    best = tl.where(better, for_c, best)
    value = tl.where(better, c, value)
    which = tl.where(better, 2, which)
    for_d = d * scale + shift
    better = for_d > best
    best = tl.where(better, for_d, best)
    value = tl.where(better, d, value)
    which = tl.where(better, 3, which)
    return tl.where(best > 0, grad, grad * slope), which, value


@triton.jit
def map_reduce(
    x,
    grad,
    partial,
    table,
    windows,
    height,
    width,
    slope,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    WINDOWS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Sums over pixels of dy and of dy * x_hat, the gradients of beta and gamma -> partial (programs, 2, C)."""
    program = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    scale, shift, mean, inverse = _read_table(table, channel, C)
    for_beta = tl.zeros((WINDOWS, BLOCK_C), tl.float32)
    for_gamma = tl.zeros((WINDOWS, BLOCK_C), tl.float32)
    for tile in range(TILES):
        index = (program * TILES + tile) * WINDOWS + tl.arange(0, WINDOWS)
        valid = index < windows
        image, top, left = _window(index, height, width)
        a = _pixel(x, image, top, left, channel, height, width, valid, C, 0)[0]
        b = _pixel(x, image, top, left, channel, height, width, valid, C, 1)[0]
        c = _pixel(x, image, top, left, channel, height, width, valid, C, 2)[0]
        d = _pixel(x, image, top, left, channel, height, width, valid, C, 3)[0]
        place, mask = _pooled_place(image, top, left, channel, height, width, valid, C)
        given = tl.load(grad + place, mask, other=0.0).to(tl.float32)
        dy, _, value = _winner(a, b, c, d, scale, shift, given, slope)
        for_beta += dy
        for_gamma += dy * (value - mean) * inverse
    tl.store(partial + program * 2 * C + channel, tl.sum(for_beta, 0), channel < C)
    tl.store(partial + program * 2 * C + C + channel, tl.sum(for_gamma, 0), channel < C)


@triton.jit
def finish_sums(partial, sums, programs, C: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr):
    """(programs, C) -> (C,)"""
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    known = channel < C
    total = tl.zeros((BLOCK_C,), tl.float32)
    for start in range(0, programs, BLOCK):
        row = start + tl.arange(0, BLOCK)
        inside = (row[:, None] < programs) & known[None, :]
        total += tl.sum(tl.load(partial + row[:, None] * C + channel[None, :], inside, other=0.0), 0)
    tl.store(sums + channel, total, known)


@triton.jit
def map_backward(
    x,
    grad,
    out,
    sums,
    table,
    windows,
    height,
    width,
    slope,
    count,
    C: tl.constexpr,
    BLOCK_C: tl.constexpr,
    WINDOWS: tl.constexpr,
):
    """dx = scale (dy - mean(dy) - x_hat mean(dy x_hat)) for the four pixels of each window."""
    channel = tl.arange(0, BLOCK_C)
    known = channel < C
    scale, shift, mean, inverse = _read_table(table, channel, C)
    mean_dy = tl.load(sums + channel, known, other=0.0)[None, :] / count
    mean_dyx = tl.load(sums + C + channel, known, other=0.0)[None, :] / count
    index = tl.program_id(0) * WINDOWS + tl.arange(0, WINDOWS)
    valid = index < windows
    image, top, left = _window(index, height, width)
    a, place_a, mask_a = _pixel(x, image, top, left, channel, height, width, valid, C, 0)
    b, place_b, mask_b = _pixel(x, image, top, left, channel, height, width, valid, C, 1)
    c, place_c, mask_c = _pixel(x, image, top, left, channel, height, width, valid, C, 2)
    d, place_d, mask_d = _pixel(x, image, top, left, channel, height, width, valid, C, 3)
    place, mask = _pooled_place(image, top, left, channel, height, width, valid, C)
    given = tl.load(grad + place, mask, other=0.0).to(tl.float32)
    dy, which, _ = _winner(a, b, c, d, scale, shift, given, slope)
    slant = inverse * mean_dyx
    offset = mean_dy - mean * slant
    kind = out.dtype.element_ty
    tl.store(out + place_a, (scale * (tl.where(which == 0, dy, 0.0) - offset - a * slant)).to(kind), mask_a)
    tl.store(out + place_b, (scale * (tl.where(which == 1, dy, 0.0) - offset - b * slant)).to(kind), mask_b)
    tl.store(out + place_c, (scale * (tl.where(which == 2, dy, 0.0) - offset - c * slant)).to(kind), mask_c)
    tl.store(out + place_d, (scale * (tl.where(which == 3, dy, 0.0) - offset - d * slant)).to(kind), mask_d)
