"""Training on a CPU with kernels in C: convolutions by Winograd's scheme, BatchNorm with what follows it in one pass.

Compiled for this machine where it has a C compiler (`library`), and used while a `kernels.training` lasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engram.nn.kernels import pytorch, serving
from engram.nn.kernels.cpu.checks import LANES
from engram.nn.kernels.serving import Counts

NAME = "c"
SLOWER = "steps take up to twice as long"


def missing() -> str:
    """Why the kernels cannot run on this machine; empty where they can."""
    from engram.nn.kernels.cpu import library

    return library.missing()


def takes_rows(values: Tensor, norm: nn.Module) -> bool:
    """Whether a training step in float32 on a CPU is under way, with a norm that these kernels know."""
    return serving.ordinary(norm) and _takes(values, norm)


def _takes(values: Tensor, norm: nn.Module) -> bool:
    return (
        serving.in_training()
        and serving.may_serve()
        and values.device.type == "cpu"
        and values.dtype is torch.float32
        and len(values) > 0
        and serving.alike(values, norm)
        and int(norm.num_features) % LANES == 0  # type: ignore[arg-type]
        and not torch.is_autocast_enabled("cpu")
        and serving.available((why := missing()) and f"kernels in C are not used, as {why}: {SLOWER}")
    )


def takes_block(images: Tensor, layers: Sequence[nn.Module]) -> bool:
    """Whether the layers are as they were built, too, and leave something of the images."""
    convolution, norm = layers[:2]
    if not serving.fits(images, layers) or not serving.untouched(layers):
        return False
    if not serving.ordinary(norm) and not serving.by_task(norm, images):
        return False
    leaves = min(images.shape[2:]) + 2 * int(convolution.padding[0]) - 2 > 1  # type: ignore[index]
    return leaves and serving.alike(images, convolution) and _takes(images, norm)


def conv_block(images: Tensor, layers: Sequence[nn.Module]) -> Tensor:
    """As `kernels.conv_block`, the tasks of a norm `by_task` one after the other. BatchNorm takes a bias of the
    convolution away: it moves the running mean only."""
    from engram.nn.kernels.cpu.functions import NormPool, together
    from engram.nn.kernels.cpu.winograd import convolution

    layer, norm, _, activation = layers
    assert isinstance(layer, nn.Conv2d)
    settings = serving.settings(norm, activation, NAME)
    first = images.shape[1] < LANES and not images.requires_grad and layer.padding == (1, 1)
    try:
        tasks = (images if first else convolution(images, layer)).chunk(getattr(norm, "n_tasks", 1))
        if first:
            return together([_first_stage(task, layer, settings) for task in tasks])
        return together([NormPool.apply(task, layer.bias, *settings) for task in tasks])
    except OverflowError:
        if serving.ordinary(norm) and norm.num_batches_tracked is not None:
            norm.num_batches_tracked.sub_(1)  # counted above, and again below
        return pytorch.conv_block(images, layers)


def _first_stage(images: Tensor, layer: nn.Conv2d, settings: tuple[Any, ...]) -> Tensor:
    """A convolution is linear in its patches, so its moments are w'm and w'Sw with their mean m and covariance S, and
    BatchNorm becomes another weight and a bias: the map itself is never written."""
    from engram.nn.kernels.cpu.functions import Stem, patch_moments, refuse_one

    gamma, beta, running_mean, running_var, momentum, epsilon, slope = settings
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
    return Stem.apply(images, (weight * scale[:, None]).T.float(), shift.float(), slope)


def norm_activate(
    values: Tensor, norm: nn.Module, slope: float, keep: Tensor | None, counts: Counts | None, positions: int
) -> Tensor:
    """As that of `cuda`."""
    from engram.nn.kernels.cpu.functions import NormRows

    serving.check_graphs(values, keep, counts, positions)
    try:
        return NormRows.apply(values, keep, counts, positions, *serving.settings(norm, slope, NAME))
    except OverflowError:
        norm.num_batches_tracked.sub_(1)  # type: ignore[operator]
        return pytorch.norm_activate(values, norm, slope, keep)
