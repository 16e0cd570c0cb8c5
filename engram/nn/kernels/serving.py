"""Who may serve a layer: kernels of our own while something is trained, PyTorch's modules otherwise and on request."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor, nn


class Counts(NamedTuple):
    """How often each position of a graph counts in the statistics of BatchNorm."""

    each: Tensor
    """(positions,) float"""
    total: int
    """their sum, known without asking a device"""


@dataclass
class Use:
    """What a training has had of kernels so far."""

    by: str = "library"
    """``triton`` or ``c`` once kernels of our own have normalised something, ``inductor`` for a compiled encoder"""
    lacking: str = ""
    """a sentence on kernels that its layers could have had on another machine"""


_allowed = ContextVar("allowed", default=not os.environ.get("ENGRAM_PLAIN"))
_use: ContextVar[Use | None] = ContextVar("use", default=None)
"""both of a thread: two trainings of one process do not change each other's kernels"""


@contextmanager
def plain(only: bool = True) -> Iterator[None]:
    """PyTorch's modules alone while it lasts; ``plain(False)`` changes nothing."""
    token = _allowed.set(_allowed.get() and not only)
    try:
        yield
    finally:
        _allowed.reset(token)


@contextmanager
def training() -> Iterator[Use]:
    """Kernels on a CPU too while it lasts, where they can be had: they are compiled on first use."""
    token = _use.set(use := Use())
    try:
        yield use
    finally:
        _use.reset(token)


def in_training() -> bool:
    return _use.get() is not None


def may_serve() -> bool:
    """Whether ordinary gradients are wanted of something and anything but PyTorch's modules is allowed."""
    return _allowed.get() and torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()


def available(lacking: str) -> bool:
    """Whether nothing is lacking on this machine; a training is told what is. To be asked last."""
    if lacking and (use := _use.get()):
        use.lacking = lacking
    return not lacking


def ordinary(norm: nn.Module) -> TypeGuard[nn.BatchNorm1d | nn.BatchNorm2d]:
    """BatchNorm that trains, with weights, and running statistics that move at a constant rate."""
    if not isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d) or type(norm).forward is not nn.BatchNorm2d.forward:
        return False  # a class derived from it may have a forward of its own
    return norm.training and norm.affine and norm.track_running_stats and norm.momentum is not None


def by_task(norm: nn.Module, images: Tensor) -> bool:
    """Whether the norm takes each of `n_tasks` tasks, one after the other in the images, by itself."""
    tasks: int = getattr(norm, "n_tasks", 0)
    return tasks > 0 and len(images) % tasks == 0 and isinstance(norm.bias, Tensor)


def untouched(layers: Sequence[nn.Module]) -> bool:
    """Whether nothing hangs on the layers (hooks, weight norms of the old kind) that kernels would pass by."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return not any(getattr(layer, name) for layer in layers for name in hooks)


def served(by: str) -> None:
    """A training is told whose kernels it has had."""
    if use := _use.get():
        use.by = by


def fits(images: Tensor, layers: Sequence[nn.Module]) -> bool:
    """Whether images (n, c, H, W) suit a 3x3 convolution as kernels know it, and its channels the norm after it."""
    convolution, norm = layers[0], layers[1]
    if type(convolution) is not nn.Conv2d or images.dim() != 4 or images.shape[1] != convolution.in_channels:
        return False
    plain = (convolution.kernel_size, convolution.stride, convolution.dilation, convolution.groups)
    square = isinstance(convolution.padding, tuple) and len(set(convolution.padding)) == 1
    known = plain == ((3, 3), (1, 1), (1, 1), 1) and square and convolution.padding_mode == "zeros"
    return known and getattr(norm, "num_features", 0) == convolution.out_channels


def alike(values: Tensor, layer: nn.Module) -> bool:
    """Whether weights and statistics of a layer are plain tensors of the values' type, on their device."""
    own = (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
    numbers = [part for part in own if part.is_floating_point()]
    return all(part.device == values.device and part.dtype == values.dtype for part in numbers)


def check_graphs(values: Tensor, keep: Tensor | None, counts: Counts | None, positions: int) -> None:
    """Rows (R, C) are those of whole graphs, ``keep`` has a row for each, and ``counts`` a number for each position."""
    rows, channels = values.shape
    if positions < 1 or rows % positions:
        raise ValueError(f"{rows} rows do not make graphs of {positions}")
    needed = {"keep": (keep, (rows // positions, channels)), "counts": (counts and counts.each, (positions,))}
    for name, (tensor, shape) in needed.items():
        if tensor is not None and (tensor.shape != shape or tensor.device != values.device):
            raise ValueError(f"{name} is {tuple(tensor.shape)} on {tensor.device} where {shape} is needed")


def check_shape(name: str, tensor: Tensor, shape: Sequence[int], like: Tensor) -> None:
    """Shape, type and device of what a kernel is given beside ``like``."""
    if tuple(tensor.shape) != tuple(shape) or tensor.device != like.device or tensor.dtype != like.dtype:
        raise ValueError(
            f"{name} is {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device} where {tuple(shape)} of "
            f"{like.dtype} on {like.device} is needed"
        )


def settings(norm: nn.Module, activation: nn.Module | float, by: str) -> tuple[Any, ...]:
    """What kernels are told of a BatchNorm and of the activation after it, or its slope; one more batch is counted."""
    served(by)
    slope = activation if isinstance(activation, float) else getattr(activation, "negative_slope", 0.0)  # of a ReLU
    if not isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):  # `by_task`: nothing is kept
        shift: Tensor = norm.bias  # type: ignore[assignment]
        gain = torch.ones_like(shift) if norm.weight is None else norm.weight
        return gain, shift, torch.zeros_like(shift), torch.ones_like(shift), 0.0, norm.eps, slope
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    return norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.momentum, norm.eps, slope
