"""Layers that know one task's images only, exact under `torch.func.vmap` in both orders of differentiation.

Fused BatchNorm gives wrong second derivatives where autograd is put around vmap, and its running averages cannot be
written inside; here it is spelt out in elementary operations, whose derivatives of any order are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from engram.nn.encoder import Encoder

Statistics = tuple[Tensor, Tensor]
"""mean and variance of each channel, (C,) and (C,)"""


class TaskNorm(nn.Module):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias, with the statistics of the images at hand.

    There are no running averages: whoever wants other statistics gives them through `with_statistics`. Without
    ``gain`` there is no weight. Shapes: (n, C, ...) -> (n, C, ...).
    """

    def __init__(self, channels: int, gain: bool = True, eps: float = 1e-3) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels)) if gain else None
        self.bias = nn.Parameter(torch.zeros(channels))
        self.given: Statistics | None = None
        self.seen: list[Statistics] | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, self.bias.dtype))  # statistics of half-precision values in float32
        axes, shape = [0, *range(2, x.ndim)], (-1, *([1] * (x.ndim - 2)))
        mean = x.mean(axes) if self.given is None else self.given[0]
        centred = x - mean.view(shape)
        variance = centred.square().mean(axes) if self.given is None else self.given[1]
        if self.seen is not None and self.given is None:
            count = x.numel() // len(self.bias)
            self.seen.append((mean, variance * (count / max(1, count - 1))))
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        return centred * scale.view(shape) + self.bias.view(shape)


class TaskEncoder(Encoder):
    """The same pixels to features, written for vmap: no memory layout to ask for, no kernels of its own."""

    def forward(self, images: Tensor, *conditions: Tensor) -> Tensor:
        pixels = images.dtype == torch.uint8
        images = images.float()
        if pixels:
            images = images * (1 / (255 * self.std)) - self.mean / self.std
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            features: Tensor = self.backbone(images, *conditions)
        return features.float()


def for_tasks(backbone: nn.Module, gain: bool = True, eps: float = 1e-3) -> nn.Module:
    """The backbone with a `TaskNorm` in the place of every BatchNorm (by place, so that names stay), fit for vmap."""
    for module in list(backbone.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
                setattr(module, name, TaskNorm(child.num_features, gain, eps))
    if isinstance(backbone, Encoder):
        mean, std = backbone.mean.flatten().tolist(), backbone.std.flatten().tolist()
        return TaskEncoder(backbone.backbone, mean, std, backbone.precision)
    return backbone


def names_of_norms(network: nn.Module) -> set[str]:
    """Names of the gains and shifts of a network."""
    norms = [(name, module) for name, module in network.named_modules() if isinstance(module, TaskNorm)]
    return {f"{prefix}.{name}" for prefix, module in norms for name, _ in module.named_parameters()}


def with_statistics(
    network: nn.Module, call: Callable[[], Tensor], given: Sequence[Statistics] | None = None
) -> tuple[Tensor, list[Statistics]]:
    """What ``call`` returns, and the statistics that each `TaskNorm` of ``network`` met in it.

    They are what running averages would gather, with the unbiased variance. ``given``, one entry for each norm in
    the order of ``network.modules()``, takes the place of the images' own.
    """
    norms = [module for module in network.modules() if isinstance(module, TaskNorm)]
    seen: list[Statistics] = []
    try:
        for index, norm in enumerate(norms):
            norm.seen, norm.given = seen, None if given is None else given[index]
        return call(), seen
    finally:  # nothing stays behind: what was seen may belong to a vmap that is over
        for norm in norms:
            norm.seen = norm.given = None
