"""Training on a CPU with kernels in C: convolutions by Winograd's scheme, BatchNorm with what follows it in one pass.

Compiled for this machine where it has a C compiler (`library`), used while `in_use` lasts where `usable` says so;
everywhere else the ordinary modules do the same, and both agree within rounding. What it buys and why:
`docs/decisions/0006-the-fast-step.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from engram.nn import fused

LANES = 16
"""channels the kernels take at a time"""
_in_use = ContextVar("in_use", default=False)


def in_use() -> AbstractContextManager[None]:
    """Kernels in C while it lasts, where they can be had."""
    return fused.during(_in_use, True)


def missing() -> str:
    """Why the kernels cannot run on this machine; empty where they can."""
    from engram.nn.native import library

    return library.missing()


def known(norm: nn.Module) -> bool:
    """Whether there are kernels for it."""
    return isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d) and fused.ordinary(norm) and norm.num_features % LANES == 0


def usable(values: Tensor, norm: nn.Module) -> bool:
    """Whether a training step in float32 on a CPU is under way that these kernels know how to do."""
    return (
        _in_use.get()
        and fused.allowed()
        and values.device.type == "cpu"
        and values.dtype is torch.float32
        and len(values) > 0
        and known(norm)
        and norm.training
        and torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and not missing()
    )


def takes(images: Tensor, layers: Sequence[nn.Module]) -> bool:
    """Whether convolution, BatchNorm, pooling and activation are as they were built and leave something of the images.

    What hangs on a layer (hooks, weight norms of the old kind) would be passed by.
    """
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    layer = layers[0]
    if type(layer) is not nn.Conv2d or any(getattr(part, name) for part in layers for name in hooks):
        return False
    return min(images.shape[2:]) + 2 * int(layer.padding[0]) - 2 > 1


def stage(images: Tensor, layer: nn.Module, norm: nn.Module, slope: float) -> Tensor:
    """leaky(maxpool2(BatchNorm(convolution))), 3x3 with stride 1. (n, c, H, W) -> (n, C, H // 2, W // 2)

    BatchNorm takes a bias of the convolution away: it moves the running mean and nothing else.
    """
    from engram.nn.native.functions import NormPool
    from engram.nn.native.winograd import convolution

    assert isinstance(layer, nn.Conv2d)
    if images.shape[1] < LANES and not images.requires_grad and layer.padding == (1, 1):
        return _first_stage(images, layer, norm, slope)
    result: Tensor = NormPool.apply(convolution(images, layer), layer.bias, *fused.settings(norm, slope))
    return result


def _first_stage(images: Tensor, layer: nn.Conv2d, norm: nn.Module, slope: float) -> Tensor:
    """A convolution is linear in its patches, so its moments are w'm and w'Sw with their mean m and covariance S, and
    BatchNorm becomes another weight and a bias: the map itself is never written."""
    from engram.nn.native.functions import Stem, patch_moments, refuse_one

    gamma, beta, running_mean, running_var, momentum, epsilon, _ = fused.settings(norm, slope)
    images = images.contiguous()
    mean, covariance = patch_moments(images)
    weight, count = layer.weight.flatten(1).double(), images.numel() // images.shape[1]
    refuse_one(count)
    bias = 0 if layer.bias is None else layer.bias
    centre, variance = weight @ mean + bias, ((weight @ covariance) * weight).sum(1)
    with torch.no_grad():
        running_mean.lerp_(centre.float(), momentum)
        running_var.lerp_((variance * (count / (count - 1))).float(), momentum)
    scale = gamma * torch.rsqrt(variance + epsilon)
    shift = beta + (bias - centre) * scale
    result: Tensor = Stem.apply(images, (weight * scale[:, None]).T.float(), shift.float(), slope)
    return result


def norm_activate(
    values: Tensor, norm: nn.Module, slope: float, keep: Tensor | None, counts: fused.Counts | None, positions: int
) -> Tensor:
    """As `fused.norm_activate`."""
    from engram.nn.native.functions import NormRows

    result: Tensor = NormRows.apply(values, keep, counts, positions, *fused.settings(norm, slope))
    return result
