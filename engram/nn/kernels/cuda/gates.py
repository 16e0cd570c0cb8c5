"""Recurrent gates over T steps as differentiable functions for a GPU: `nn.history` in a few launches per step.

Only the products with the state walk through time; gradients of the weights are one product over all steps at the end.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from engram.nn.kernels.cuda import gate_kernels as kernels

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
            _launch(kernels.library_forward, given[t], past[t], state, states[t], like=state)
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
                kernels.library_backward, given[t], past[t], before, grad[t], carry, to_given[t], to_past[t], to_state,
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
            _launch(kernels.paper_reset, given[t], past[t], state, products[t], like=state)
            torch.mm(products[t], candidate.T, out=inner[t])
            _launch(kernels.paper_forward, given[t], past[t], inner[t], state, states[t], like=state)
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
                kernels.paper_backward_new, given[t], past[t], inner[t], before, grad[t], carry,
                to_given[t], to_past[t], to_inner[t], to_state, like=first,
            )  # fmt: skip
            to_product = to_inner[t] @ candidate
            _launch(
                kernels.paper_backward_reset, given[t], past[t], before, to_product, to_given[t], to_past[t], to_state,
                like=first,
            )  # fmt: skip
            carry = torch.addmm(to_state, to_past[t], gates)
        earlier = torch.cat([first[None], states[:-1]]).flatten(0, 1)
        for_gates, for_candidate = to_past.flatten(0, 1).T @ earlier, to_inner.flatten(0, 1).T @ products.flatten(0, 1)
        return to_given, carry, for_gates, for_candidate
