"""Triton kernels for the element-wise halves of a recurrent step, forward and backward: equations in `nn.history`.

Rows are slots, ``D`` numbers each; a tensor of several gates has them side by side, (rows, 2 D) or (rows, 3 D). Each
kernel does what `engram.nn.kernels.pytorch` writes in torch, in one launch instead of ten.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _place(count, D: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return index, index // D, index % D, index < count


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def _tanh(x):
    return 2 * _sigmoid(2 * x) - 1


@triton.jit
def library_forward(given, past, state, out, count, D: tl.constexpr, BLOCK: tl.constexpr):
    index, row, column, inside = _place(count, D, BLOCK)
    place = row * 3 * D + column
    r = _sigmoid(tl.load(given + place, inside) + tl.load(past + place, inside))
    z = _sigmoid(tl.load(given + place + D, inside) + tl.load(past + place + D, inside))
    n = _tanh(tl.load(given + place + 2 * D, inside) + r * tl.load(past + place + 2 * D, inside))
    tl.store(out + index, n + z * (tl.load(state + index, inside) - n), inside)


@triton.jit
def library_backward(
    given, past, state, grad, carry, to_given, to_past, to_state, count, D: tl.constexpr, BLOCK: tl.constexpr
):
    index, row, column, inside = _place(count, D, BLOCK)
    place = row * 3 * D + column
    inner = tl.load(past + place + 2 * D, inside)
    r = _sigmoid(tl.load(given + place, inside) + tl.load(past + place, inside))
    z = _sigmoid(tl.load(given + place + D, inside) + tl.load(past + place + D, inside))
    n = _tanh(tl.load(given + place + 2 * D, inside) + r * inner)
    change = tl.load(grad + index, inside) + tl.load(carry + index, inside)
    to_n = change * (1 - z) * (1 - n * n)
    to_z = change * (tl.load(state + index, inside) - n) * z * (1 - z)
    to_r = to_n * inner * r * (1 - r)
    tl.store(to_given + place, to_r, inside)
    tl.store(to_given + place + D, to_z, inside)
    tl.store(to_given + place + 2 * D, to_n, inside)
    tl.store(to_past + place, to_r, inside)
    tl.store(to_past + place + D, to_z, inside)
    tl.store(to_past + place + 2 * D, to_n * r, inside)
    tl.store(to_state + index, change * z, inside)


@triton.jit
def paper_reset(given, past, state, out, count, D: tl.constexpr, BLOCK: tl.constexpr):
    """r * h"""
    index, row, column, inside = _place(count, D, BLOCK)
    r = _sigmoid(tl.load(given + row * 3 * D + D + column, inside) + tl.load(past + row * 2 * D + D + column, inside))
    tl.store(out + index, r * tl.load(state + index, inside), inside)


@triton.jit
def paper_forward(given, past, inner, state, out, count, D: tl.constexpr, BLOCK: tl.constexpr):
    index, row, column, inside = _place(count, D, BLOCK)
    z = _sigmoid(tl.load(given + row * 3 * D + column, inside) + tl.load(past + row * 2 * D + column, inside))
    n = _tanh(tl.load(given + row * 3 * D + 2 * D + column, inside) + tl.load(inner + index, inside))
    old = tl.load(state + index, inside)
    tl.store(out + index, old + z * (n - old), inside)


@triton.jit
def paper_backward_new(
    given, past, inner, state, grad, carry, to_given, to_past, to_inner, to_state, count,
    D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    index, row, column, inside = _place(count, D, BLOCK)
    z = _sigmoid(tl.load(given + row * 3 * D + column, inside) + tl.load(past + row * 2 * D + column, inside))
    n = _tanh(tl.load(given + row * 3 * D + 2 * D + column, inside) + tl.load(inner + index, inside))
    change = tl.load(grad + index, inside) + tl.load(carry + index, inside)
    to_n = change * z * (1 - n * n)
    to_z = change * (n - tl.load(state + index, inside)) * z * (1 - z)
    tl.store(to_given + row * 3 * D + column, to_z, inside)
    tl.store(to_given + row * 3 * D + 2 * D + column, to_n, inside)
    tl.store(to_past + row * 2 * D + column, to_z, inside)
    tl.store(to_inner + index, to_n, inside)
    tl.store(to_state + index, change * (1 - z), inside)


@triton.jit
def paper_backward_reset(
    given, past, state, to_product, to_given, to_past, to_state, count, D: tl.constexpr, BLOCK: tl.constexpr
):
    index, row, column, inside = _place(count, D, BLOCK)
    r = _sigmoid(tl.load(given + row * 3 * D + D + column, inside) + tl.load(past + row * 2 * D + D + column, inside))
    change = tl.load(to_product + index, inside)
    to_r = change * tl.load(state + index, inside) * r * (1 - r)
    tl.store(to_given + row * 3 * D + D + column, to_r, inside)
    tl.store(to_past + row * 2 * D + D + column, to_r, inside)
    tl.store(to_state + index, tl.load(to_state + index, inside) + change * r, inside)
