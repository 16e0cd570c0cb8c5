"""BatchNorm + 2x2 max pooling + LeakyReLU as one operation, an encoder's whole first stage from pixels, and gates.

Triton kernels for training in bf16 on a GPU, used where `usable` says so; everywhere else the ordinary modules do the
same, and both agree within rounding. What it buys and why: `docs/decisions/0006-the-fast-step.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

_allowed = ContextVar("allowed", default=not os.environ.get("ENGRAM_PLAIN"))
"""of a thread: two trainings of one process do not change each other's kernels"""
_calls = 0


class Counts(NamedTuple):
    """How often each position of a graph counts in the statistics of BatchNorm."""

    each: Tensor
    """(positions,) float"""
    total: int
    """their sum, known without asking a device"""


@contextmanager
def during(switch: ContextVar[bool], value: bool) -> Iterator[None]:
    """A switch in this position while it lasts, in this thread."""
    token = switch.set(value)
    try:
        yield
    finally:
        switch.reset(token)


def plain(only: bool = True) -> AbstractContextManager[None]:
    """Ordinary modules alone while it lasts; ``plain(False)`` changes nothing."""
    return during(_allowed, _allowed.get() and not only)


def allowed() -> bool:
    """Whether anything but ordinary modules may be used at all."""
    return _allowed.get()


def calls() -> int:
    """How often kernels of our own have normalised something in this process."""
    return _calls


@cache
def missing() -> str:
    """Why the kernels cannot run on this machine; empty where they can."""
    if not torch.cuda.is_available():
        return "there is no CUDA GPU"
    if torch.cuda.get_device_capability() < (8, 0):
        return "the GPU has no bf16 matrix units"
    try:
        import triton  # noqa: F401
    except ImportError:
        return "Triton is not installed"
    return ""


def ordinary(norm: nn.Module) -> bool:
    """BatchNorm with weights and running statistics that move at a constant rate."""
    if not isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d) or type(norm) not in (nn.BatchNorm1d, nn.BatchNorm2d):
        return False  # a class derived from it has a forward of its own
    return norm.affine and norm.track_running_stats and norm.momentum is not None


def usable(values: Tensor, norm: nn.Module) -> bool:
    """Whether a training step in bf16 on a GPU is under way that these kernels know how to do."""
    return (
        allowed()
        and values.is_cuda
        and type(norm) is nn.BatchNorm2d
        and ordinary(norm)
        and norm.training
        and torch.is_grad_enabled()
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") is torch.bfloat16
        and not torch._C._are_functorch_transforms_active()
        and not missing()
    )


def norm_pool_activate(values: Tensor, norm: nn.Module, slope: float) -> Tensor:
    """leaky(maxpool2(BatchNorm(x))). (n, C, H, W) -> (n, C, H // 2, W // 2)"""
    from engram.nn.fused.functions import NormPool

    result: Tensor = NormPool.apply(values, *settings(norm, slope))
    return result


def first_stage(
    pixels: Tensor, scale: Tensor, shift: Tensor, convolution: nn.Module, norm: nn.Module, slope: float
) -> Tensor:
    """leaky(maxpool2(BatchNorm(convolution(pixels * scale + shift)))), 3x3 with zero padding and without bias.

    Shapes: uint8 (n, c, H, W), (c, 1, 1), (c, 1, 1) -> (n, C, H // 2, W // 2)
    """
    from engram.nn.fused.functions import Stem

    channels = pixels.shape[1]
    colours = torch.cat([part.flatten().expand(channels) for part in (scale, shift)])
    result: Tensor = Stem.apply(pixels, colours, convolution.weight, *settings(norm, slope))
    return result


def norm_activate(
    values: Tensor, norm: nn.Module, slope: float, keep: Tensor | None, counts: Counts | None, positions: int
) -> Tensor:
    """leaky(BatchNorm(x)) * keep for rows (R, C), ``positions`` of them for each graph's row of ``keep`` (graphs, C).

    ``keep`` None drops nothing, ``counts`` None counts each row once.
    """
    from engram.nn.fused.functions import NormRows

    result: Tensor = NormRows.apply(values, keep, counts, positions, *settings(norm, slope))
    return result


def group_product(values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One number of each group of channels: x[r, g] . w[g] + b[g]. (R, G * D), (G, D), (G,) -> (R, G)"""
    from engram.nn.fused.functions import GroupProduct

    result: Tensor = GroupProduct.apply(values, weight, bias)
    return result


def settings(norm: nn.Module, slope: float) -> tuple[Any, ...]:
    """What kernels are told of a BatchNorm and of the activation after it; one more batch is counted."""
    global _calls
    assert isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d) and norm.num_batches_tracked is not None
    _calls += 1
    norm.num_batches_tracked.add_(1)
    return norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.momentum, norm.eps, slope


def trains(values: Tensor) -> bool:
    """Whether something in float32 is being trained on a GPU."""
    is_plain = torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()
    is_single = values.dtype is torch.float32 and not torch.is_autocast_enabled("cuda")
    return allowed() and values.is_cuda and is_single and is_plain and not missing()


def library_gate(given: Tensor, state: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`history.LibraryGate` from its products with the nodes. (T, ..., 3D), (..., D), (3D, D), (3D,) -> (T, ..., D)"""
    from engram.nn.fused.gates import LibrarySteps

    states: Tensor = LibrarySteps.apply(given.flatten(1, -2), state.flatten(0, -2), weight, bias)
    return states.view(*given.shape[:-1], -1)


def paper_gate(given: Tensor, state: Tensor, gates: Tensor, candidate: Tensor) -> Tensor:
    """`history.PaperGate` from its products with the nodes. (T, ..., 3D), (..., D), (2D, D), (D, D) -> (T, ..., D)"""
    from engram.nn.fused.gates import PaperSteps

    states: Tensor = PaperSteps.apply(given.flatten(1, -2), state.flatten(0, -2), gates, candidate)
    return states.view(*given.shape[:-1], -1)
