"""Training on a GPU with kernels in Triton: convolution blocks in bf16, an encoder's whole first stage from pixels;
pointwise nets and gates in float32."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn.kernels import serving
from engram.nn.kernels.serving import Counts

NAME = "triton"


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


def _available() -> bool:
    return serving.available((why := missing()) and f"fused kernels are not used, as {why}")


def takes_block(images: Tensor, layers: Sequence[nn.Module]) -> bool:
    """Whether a training step in bf16 on a GPU is under way with layers as they were built."""
    return (
        images.is_cuda
        and serving.may_serve()
        and type(layers[1]) is nn.BatchNorm2d
        and serving.ordinary(layers[1])
        and layers[1].weight.device == images.device
        and serving.untouched(layers[1:])
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") is torch.bfloat16
        and _available()
    )


def conv_block(images: Tensor, layers: Sequence[nn.Module]) -> Tensor:
    """As `kernels.conv_block`; the convolution is the library's."""
    from engram.nn.kernels.cuda.launches import NormPool

    convolution, norm, _, activation = layers
    values = convolution(images)
    _check_channels(values, norm, 4)
    return NormPool.apply(values, *serving.settings(norm, activation, NAME))


def _check_channels(values: Tensor, norm: nn.Module, dimensions: int) -> None:
    if values.dim() != dimensions or values.shape[1] != norm.num_features:
        raise ValueError(f"BatchNorm has {norm.num_features} channels and was given {tuple(values.shape)}")


def takes_pixels(pixels: Tensor, layers: Sequence[nn.Module]) -> bool:
    """Whether `first_stage` knows the convolution too: padding of 1 and no bias."""
    convolution = layers[0]
    known = type(convolution) is nn.Conv2d and convolution.padding == (1, 1) and convolution.bias is None
    fits = known and pixels.dtype is torch.uint8 and serving.fits(pixels, layers)
    return fits and serving.untouched(layers[:1]) and takes_block(pixels, layers)


def first_stage(pixels: Tensor, layers: Sequence[nn.Module], scale: Tensor, shift: Tensor) -> Tensor:
    """As `kernels.conv_block` of pixels. uint8 (n, c, H, W), (c, 1, 1), (c, 1, 1) -> (n, C, H // 2, W // 2)"""
    from engram.nn.kernels.cuda.launches import Stem

    convolution, norm, _, activation = layers
    colours = torch.cat([part.flatten().expand(pixels.shape[1]) for part in (scale, shift)])
    return Stem.apply(pixels, colours, convolution.weight, *serving.settings(norm, activation, NAME))


def trains(values: Tensor) -> bool:
    """Whether something in float32 is being trained on a GPU."""
    is_single = values.dtype is torch.float32 and not torch.is_autocast_enabled("cuda")
    return values.is_cuda and is_single and serving.may_serve() and _available()


def takes_rows(values: Tensor, norm: nn.Module) -> bool:
    """Whether `norm_activate` knows the norm."""
    return trains(values) and serving.ordinary(norm) and serving.alike(values, norm)


def norm_activate(
    values: Tensor, norm: nn.Module, slope: float, keep: Tensor | None, counts: Counts | None, positions: int
) -> Tensor:
    """leaky(BatchNorm(x)) * keep for rows (R, C), ``positions`` of them for each graph's row of ``keep`` (graphs, C).

    ``keep`` None drops nothing, ``counts`` None counts each row once.
    """
    from engram.nn.kernels.cuda.launches import NormRows

    _check_channels(values, norm, 2)
    serving.check_graphs(values, keep, counts, positions)
    return NormRows.apply(values, keep, counts, positions, *serving.settings(norm, slope, NAME))


def group_product(values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """As `kernels.group_product`."""
    from engram.nn.kernels.cuda.launches import GroupProduct

    groups, width = weight.shape
    serving.check_shape("values", values, (len(values), groups * width), weight)
    serving.check_shape("bias", bias, (groups,), weight)
    return GroupProduct.apply(values, weight, bias)


def library_gate(
    nodes: Tensor, state: Tensor, weight: Tensor, past_weight: Tensor, bias: Tensor, past_bias: Tensor
) -> Tensor:
    """As `kernels.library_gate`: products with the nodes run for all T at once."""
    from engram.nn.kernels.cuda.gates import LibrarySteps

    _check_steps(nodes, state, 1)
    given = F.linear(nodes, weight, bias)
    states: Tensor = LibrarySteps.apply(given.flatten(1, -2), state.flatten(0, -2), past_weight, past_bias)
    return states.view(nodes.shape)


def paper_gate(given: Tensor, state: Tensor, gates: Tensor, candidate: Tensor) -> Tensor:
    """As `kernels.paper_gate`."""
    from engram.nn.kernels.cuda.gates import PaperSteps

    _check_steps(given, state, 3)
    states: Tensor = PaperSteps.apply(given.flatten(1, -2), state.flatten(0, -2), gates, candidate)
    return states.view(*given.shape[:-1], -1)


def _check_steps(given: Tensor, state: Tensor, times: int) -> None:
    """Steps (T, ..., times D) go with a state (..., D); products look at the weights."""
    serving.check_shape("given", given, (len(given), *state.shape[:-1], times * state.shape[-1]), state)
