"""BatchNorm that never leaves training mode, made honest: every task is normalised by its own statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from engram.errors import EngramError


class TaskBatchNorm(nn.Module):
    """y = (x - mean_t) / sqrt(var_t + eps) * weight + bias, mean and biased variance over the inputs of task t alone.

    Takes the place, and the weight and bias, of an ordinary layer. The batch holds `n_tasks` tasks of equal size one
    after the other (see `side_by_side`); training and evaluation are the same and there are no running statistics. A
    task's outputs do not depend on the other tasks of the batch, but its inputs do depend on each other.

    Shapes: (n_tasks * n, C, ...) -> the same
    """

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.n_tasks = 1

    def forward(self, x: Tensor) -> Tensor:
        tasks = x.float().unflatten(0, (self.n_tasks, -1))
        variance, mean = torch.var_mean(tasks, [1, *range(3, tasks.ndim)], correction=0, keepdim=True)
        channels = (-1, *[1] * (tasks.ndim - 3))
        normalised = (tasks - mean) * (variance + self.eps).rsqrt()
        if self.weight is not None:
            normalised = normalised * self.weight.view(channels)
        if self.bias is not None:
            normalised = normalised + self.bias.view(channels)
        return normalised.flatten(0, 1).to(x.dtype)


def normalise_by_task(module: nn.Module) -> None:
    """Put a `TaskBatchNorm` with the same weights in the place of every BatchNorm inside ``module``."""
    layers = [
        (parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if isinstance(child, _BatchNorm)
    ]
    if not layers:
        raise EngramError(
            "statistics of each task were asked for but the encoder has no BatchNorm (features have been through it "
            "already): take the running ones"
        )
    for parent, name, child in layers:
        setattr(parent, name, TaskBatchNorm(child))


@contextmanager
def side_by_side(module: nn.Module, n_tasks: int) -> Iterator[None]:
    """Inside, what ``module`` is given are ``n_tasks`` tasks of equal size, one after the other."""
    norms = [part for part in module.modules() if isinstance(part, TaskBatchNorm)]
    for norm in norms:
        norm.n_tasks = n_tasks
    try:
        yield
    finally:
        for norm in norms:
            norm.n_tasks = 1


def encode_by_task(backbone: nn.Module, images: Tensor) -> Tensor:
    """Features of each task's images, normalised by themselves, in one call: (B, n, ...) -> (B, n, *out_shape)"""
    with side_by_side(backbone, len(images)):
        features: Tensor = backbone(images.flatten(0, 1))
    return features.unflatten(0, images.shape[:2])
