"""Triton kernels for the whole first stage: pixels -> convolution 3x3 -> BatchNorm -> 2x2 max pooling -> LeakyReLU.

An image has 3 channels and its map 64 or more, so its 3x3 neighbourhoods (27 numbers a pixel) take half the room of
the map, and a product of them with the weights costs less than reading the map back. So the neighbourhoods are written
once, every later kernel makes its part of the map from them, and the map, the largest tensor of all, never exists.

Images are uint8 (n, c, H, W) as stored. ``patches`` (windows, 4, K) holds the neighbourhoods P of the four pixels of
each pooling window, K = 9 c rounded up to 32, with a 1 in place 9 c; ``weights`` W is (K, C), 0 from row 9 c on. The
border of the normalised image is 0, as padding makes it; a pixel that an odd edge cuts off is a row of zeros.

Sums over the map follow from the Gram matrix G = P'P: its row 9 c is the sum of P, so sum(PW) = G[9c] W, and
sum((PW)^2) = diag(W'GW); and the gradient of W needs P'(PW) = G W. So the map is made twice: forward and backward.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engram.nn.kernels.cuda.map_kernels import _pooled_place, _read_table, _window, _winner


@triton.jit
def stem_patches(
    pixels, colours, patches, count, height, width, CHANNELS: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr
):
    """Normalised neighbourhoods, k = 9 channel + 3 row + column: (n, c, H, W) -> (windows * 4, K)."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    corner = index % 4
    image, top, left = _window(index // 4, height, width)
    row, column = top + corner // 2, left + corner % 2
    exists = (index < count) & (row < height) & (column < width)
    k = tl.arange(0, K)
    channel = k // 9
    row = row[:, None] + ((k % 9) // 3 - 1)[None, :]
    column = column[:, None] + (k % 3 - 1)[None, :]
    used = channel < CHANNELS
    inside = exists[:, None] & used[None, :] & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    place = ((image * CHANNELS)[:, None] + channel[None, :]) * (height * width) + row * width + column
    raw = tl.load(pixels + place, inside, other=0).to(tl.float32)
    scale = tl.load(colours + channel, used, other=0.0)[None, :]
    shift = tl.load(colours + CHANNELS + channel, used, other=0.0)[None, :]
    one = exists[:, None] & (k == 9 * CHANNELS)[None, :]
    value = tl.where(inside, raw * scale + shift, tl.where(one, 1.0, 0.0)).to(patches.dtype.element_ty)
    tl.store(
        patches + index[:, None].to(tl.int64) * K + k[None, :], value, (index < count)[:, None] & (k >= 0)[None, :]
    )


@triton.jit
def _corner(patches, index, valid, K: tl.constexpr, CORNER: tl.constexpr):
    """Neighbourhoods of pixel CORNER of each window: (WINDOWS, K)"""
    k = tl.arange(0, K)
    place = (index.to(tl.int64) * 4 + CORNER)[:, None] * K + k[None, :]
    return tl.load(patches + place, valid[:, None] & (k >= 0)[None, :], other=0.0)


@triton.jit
def _matrix(weights, C: tl.constexpr, BLOCK_C: tl.constexpr, K: tl.constexpr):
    k = tl.arange(0, K)
    channel = tl.arange(0, BLOCK_C)
    return tl.load(weights + k[:, None] * C + channel[None, :], (channel < C)[None, :] & (k >= 0)[:, None], other=0.0)


@triton.jit
def stem_gram(patches, partial, rows, K: tl.constexpr, BLOCK: tl.constexpr, TILES: tl.constexpr):
    """P'P over this program's rows -> partial (programs, K, K)."""
    program = tl.program_id(0)
    k = tl.arange(0, K)
    total = tl.zeros((K, K), tl.float32)
    for tile in range(TILES):
        row = (program * TILES + tile) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(
            patches + row[:, None].to(tl.int64) * K + k[None, :], (row < rows)[:, None] & (k >= 0)[None, :], 0.0
        )
        total += tl.dot(tl.trans(value), value)
    tl.store(partial + program * K * K + k[:, None] * K + k[None, :], total)


@triton.jit
def stem_apply(
    patches, weights, out, table, windows, height, width, slope,
    K: tl.constexpr, C: tl.constexpr, BLOCK_C: tl.constexpr, WINDOWS: tl.constexpr,
):  # fmt: skip
    """The pooled and activated map (n, H // 2, W // 2, C)."""
    channel = tl.arange(0, BLOCK_C)
    matrix = _matrix(weights, C, BLOCK_C, K)
    scale, shift, _, _ = _read_table(table, channel, C)
    index = tl.program_id(0) * WINDOWS + tl.arange(0, WINDOWS)
    valid = index < windows
    image, top, left = _window(index, height, width)
    best = tl.dot(_corner(patches, index, valid, K, 0), matrix) * scale + shift
    best = tl.maximum(best, tl.dot(_corner(patches, index, valid, K, 1), matrix) * scale + shift)
    best = tl.maximum(best, tl.dot(_corner(patches, index, valid, K, 2), matrix) * scale + shift)
    best = tl.maximum(best, tl.dot(_corner(patches, index, valid, K, 3), matrix) * scale + shift)
    best = tl.where(best > 0, best, best * slope)
    place, mask = _pooled_place(image, top, left, channel, height, width, valid, C)
    tl.store(out + place, best.to(out.dtype.element_ty), mask)


@triton.jit
def stem_backward(
    patches, weights, grad, sums, products, table, windows, height, width, slope,
    K: tl.constexpr, C: tl.constexpr, BLOCK_C: tl.constexpr, WINDOWS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Sums of dy and of dy * x_hat -> (programs, 2, C), and P'dy -> (programs, K, C)."""
    program = tl.program_id(0)
    channel = tl.arange(0, BLOCK_C)
    known = channel < C
    matrix = _matrix(weights, C, BLOCK_C, K)
    scale, shift, mean, inverse = _read_table(table, channel, C)
    kind = weights.dtype.element_ty
    for_beta = tl.zeros((WINDOWS, BLOCK_C), tl.float32)
    for_gamma = tl.zeros((WINDOWS, BLOCK_C), tl.float32)
    result = tl.zeros((K, BLOCK_C), tl.float32)
    for tile in range(TILES):
        index = (program * TILES + tile) * WINDOWS + tl.arange(0, WINDOWS)
        valid = index < windows
        image, top, left = _window(index, height, width)
        place, mask = _pooled_place(image, top, left, channel, height, width, valid, C)
        given = tl.load(grad + place, mask, other=0.0).to(tl.float32)
        patch_a = _corner(patches, index, valid, K, 0)
        patch_b = _corner(patches, index, valid, K, 1)
        patch_c = _corner(patches, index, valid, K, 2)
        patch_d = _corner(patches, index, valid, K, 3)
        a, b = tl.dot(patch_a, matrix), tl.dot(patch_b, matrix)
        c, d = tl.dot(patch_c, matrix), tl.dot(patch_d, matrix)
        dy, which, value = _winner(a, b, c, d, scale, shift, given, slope)
        for_beta += dy
        for_gamma += dy * (value - mean) * inverse
        dy = dy.to(kind)
        result = tl.dot(tl.trans(patch_a), tl.where(which == 0, dy, 0.0).to(kind), result)
        result = tl.dot(tl.trans(patch_b), tl.where(which == 1, dy, 0.0).to(kind), result)
        result = tl.dot(tl.trans(patch_c), tl.where(which == 2, dy, 0.0).to(kind), result)
        result = tl.dot(tl.trans(patch_d), tl.where(which == 3, dy, 0.0).to(kind), result)
    tl.store(sums + program * 2 * C + channel, tl.sum(for_beta, 0), known)
    tl.store(sums + program * 2 * C + C + channel, tl.sum(for_gamma, 0), known)
    k = tl.arange(0, K)
    tl.store(products + program * K * C + k[:, None] * C + channel[None, :], result, known[None, :] & (k >= 0)[:, None])
