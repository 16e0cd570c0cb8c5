"""BatchNorm that never leaves training mode, made honest: every task is normalised by its own statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class TaskBatchNorm(nn.Module):
    """y = (x - mean_t) / sqrt(var_t + eps) * weight + bias, mean and biased variance over the inputs of task t alone.

    The batch holds `n_tasks` tasks of equal size one after the other (see `side_by_side`); training and evaluation are
    the same and there are no running statistics. A task's outputs do not depend on the other tasks of the batch, but
    its inputs do depend on each other.

    Shapes: (n_tasks * n, C, ...) -> the same
    """

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.n_tasks = 1

    def forward(self, x: Tensor) -> Tensor:
        tasks = x.to(self.weight.dtype).unflatten(0, (self.n_tasks, -1))
        over = [1, *range(3, tasks.ndim)]
        variance, mean = torch.var_mean(tasks, over, correction=0, keepdim=True)
        channels = (-1, *[1] * (tasks.ndim - 3))
        scale = self.weight.view(channels) * (variance + self.eps).rsqrt()
        return ((tasks - mean) * scale + self.bias.view(channels)).flatten(0, 1).to(x.dtype)


def normalise_by_task(module: nn.Module) -> None:
    """Put a `TaskBatchNorm` with the same weights in the place of every BatchNorm inside ``module``."""
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _BatchNorm):
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
