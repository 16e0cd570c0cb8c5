"""BatchNorm by the statistics of one task's images alone, in training and at test: what several public codes do."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.errors import EngramError


class TaskBatchNorm(nn.Module):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, mean and variance of each of ``tasks`` equal runs of images.

    Takes the place, and the weight and bias, of an ordinary layer. Shapes: (tasks * n, C, ...) -> the same
    """

    def __init__(self, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.tasks = 1

    def forward(self, x: Tensor) -> Tensor:
        by_task = x.float().unflatten(0, (self.tasks, -1))
        over = [1, *range(3, by_task.ndim)]
        variance, mean = torch.var_mean(by_task, over, correction=0, keepdim=True)
        normalised = ((by_task - mean) * torch.rsqrt(variance + self.eps)).flatten(0, 1).to(x.dtype)
        shape = (-1, *(1,) * (x.ndim - 2))
        if self.weight is not None:
            normalised = normalised * self.weight.view(shape)
        return normalised if self.bias is None else normalised + self.bias.view(shape)


def normalise_by_task(backbone: nn.Module) -> None:
    """Put a `TaskBatchNorm` in the place of every BatchNorm of an encoder."""
    layers = [
        (parent, name, child)
        for parent in backbone.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d)
    ]
    if not layers:
        raise EngramError(
            "[method] batch_norm = 'task' but the encoder has no BatchNorm (features have been through it already): "
            "use batch_norm = 'running'"
        )
    for parent, name, child in layers:
        setattr(parent, name, TaskBatchNorm(child))


def encode_by_task(backbone: nn.Module, images: Tensor) -> Tensor:
    """Features of each task's images, normalised by themselves, in one call: (B, n, ...) -> (B, n, *out_shape)"""
    for module in backbone.modules():
        if isinstance(module, TaskBatchNorm):
            module.tasks = len(images)
    features: Tensor = backbone(images.flatten(0, 1))
    return features.unflatten(0, images.shape[:2])
