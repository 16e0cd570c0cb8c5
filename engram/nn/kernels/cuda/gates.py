"""Recurrent gates over T steps for a GPU: `nn.history` in a few launches per step, with their Triton kernels.

Only the products with the state walk through time; gradients of the weights are one product over all steps at the end.
The kernels are the element-wise halves of a step, forward and backward. Rows are slots, ``D`` numbers each; a tensor of
several gates has them side by side, (rows, 2 D) or (rows, 3 D). Each kernel does what `nn.kernels.pytorch` writes
in torch, in one launch instead of ten.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable


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


BLOCK = 256


def _launch(kernel: Any, *tensors: Tensor, like: Tensor) -> None:
    count = like.numel()
    kernel[(triton.cdiv(count, BLOCK),)](*tensors, count, D=like.shape[-1], BLOCK=BLOCK)


class LibrarySteps(torch.autograd.Function):
    """given (T, R, 3D) = W v + b, state (R, D), U (3D, D), c (3D,) -> hidden states (T, R, D)"""

    @staticmethod
    def forward(ctx: Any, given: Tensor, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        given, first = given.contiguous(), state.contiguous()
        states = torch.empty(len(given), *state.shape, device=given.device)
        past = torch.empty_like(given)
        state = first
        for t in range(len(given)):
            torch.addmm(bias, state, weight.T, out=past[t])
            _launch(library_forward, given[t], past[t], state, states[t], like=state)
            state = states[t]
        ctx.save_for_backward(given, past, first, states, weight)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        given, past, first, states, weight = ctx.saved_tensors
        grad = gradients[0].contiguous()
        to_given, to_past = torch.empty_like(given), torch.empty_like(past)
        carry = torch.zeros_like(first)
        for t in reversed(range(len(given))):
            before = states[t - 1] if t else first
            to_state = torch.empty_like(first)
            _launch(
                library_backward, given[t], past[t], before, grad[t], carry, to_given[t], to_past[t], to_state,
                like=first,
            )  # fmt: skip
            carry = torch.addmm(to_state, to_past[t], weight)
        flat, earlier = to_past.flatten(0, 1), torch.cat([first[None], states[:-1]]).flatten(0, 1)
        return to_given, carry, flat.T @ earlier, flat.sum(0)


class PaperSteps(torch.autograd.Function):
    """given (T, R, 3D) = W v + b for z, r, h~; state (R, D); U_zr (2D, D); U_h (D, D) -> hidden states (T, R, D)"""

    @staticmethod
    def forward(ctx: Any, given: Tensor, state: Tensor, gates: Tensor, candidate: Tensor) -> Tensor:
        given, first = given.contiguous(), state.contiguous()
        states = torch.empty(len(given), *state.shape, device=given.device)
        products, inner = torch.empty_like(states), torch.empty_like(states)
        past = torch.empty(len(given), len(first), len(gates), device=given.device)
        state = first
        for t in range(len(given)):
            torch.mm(state, gates.T, out=past[t])
            _launch(paper_reset, given[t], past[t], state, products[t], like=state)
            torch.mm(products[t], candidate.T, out=inner[t])
            _launch(paper_forward, given[t], past[t], inner[t], state, states[t], like=state)
            state = states[t]
        ctx.save_for_backward(given, past, products, inner, first, states, gates, candidate)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        given, past, products, inner, first, states, gates, candidate = ctx.saved_tensors
        grad = gradients[0].contiguous()
        to_given, to_past, to_inner = torch.empty_like(given), torch.empty_like(past), torch.empty_like(inner)
        carry = torch.zeros_like(first)
        for t in reversed(range(len(given))):
            before = states[t - 1] if t else first
            to_state = torch.empty_like(first)
            _launch(
                paper_backward_new, given[t], past[t], inner[t], before, grad[t], carry,
                to_given[t], to_past[t], to_inner[t], to_state, like=first,
            )  # fmt: skip
            to_product = to_inner[t] @ candidate
            _launch(
                paper_backward_reset, given[t], past[t], before, to_product, to_given[t], to_past[t], to_state,
                like=first,
            )  # fmt: skip
            carry = torch.addmm(to_state, to_past[t], gates)
        earlier = torch.cat([first[None], states[:-1]]).flatten(0, 1)
        for_gates, for_candidate = to_past.flatten(0, 1).T @ earlier, to_inner.flatten(0, 1).T @ products.flatten(0, 1)
        return to_given, carry, for_gates, for_candidate
