"""What a layer asks for in one call; who does it is decided here.

In training these are kernels of our own where there are some: in bf16 and float32 on a GPU (`cuda`, in Triton), in
float32 on a CPU (`cpu`, in C). Everywhere else PyTorch does the same (`pytorch`), and all agree within rounding. What
it buys and why: `docs/decisions/0006-the-fast-step.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from engram.nn.kernels import cpu, cuda, pytorch
from engram.nn.kernels.serving import Counts as Counts
from engram.nn.kernels.serving import Use as Use
from engram.nn.kernels.serving import plain as plain
from engram.nn.kernels.serving import training as training

SIDES = (cuda, cpu)


def conv_block(images: Tensor, layers: Sequence[nn.Module], *colours: Tensor) -> Tensor:
    """leaky(maxpool2(BatchNorm(convolution))), the four ``layers``, 3x3 with stride 1.

    ``colours`` are a scale and a shift (c, 1, 1): then uint8 pixels are given, and pixels * scale + shift are the
    images. Shapes: (n, c, H, W) -> (n, C, H', W')
    """
    if colours:
        if cuda.takes_pixels(images, layers):
            return cuda.first_stage(images, layers, *colours)
        scale, shift = colours
        images = (images.float() * scale + shift).contiguous(memory_format=torch.channels_last)
    for side in SIDES:
        if side.takes_block(images, layers):
            return side.conv_block(images, layers)
    return pytorch.conv_block(images, layers)


def pointwise(
    values: Tensor, norm: nn.Module, slope: float, rate: float, graphs: int, counts: Counts | None = None
) -> Tensor:
    """dropout(leaky(BatchNorm(x))) for the rows (R, C) of ``graphs`` graphs, as many each; a slope of 1 is no leaky.

    Dropout takes whole channels of a graph. ``counts`` says how often each row of a graph counts in the statistics:
    only where `can_count`.
    """
    keep = None
    if rate > 0:
        keep = values.new_empty(graphs, values.shape[-1]).bernoulli_(1 - rate).div_(1 - rate)
    fits = values.dim() == 2 and values.shape[1] == getattr(norm, "num_features", 0)
    for side in SIDES if fits else ():
        if side.takes_rows(values, norm):
            return side.norm_activate(values, norm, slope, keep, counts, len(values) // graphs)
    assert counts is None, "ordinary BatchNorm counts every row once"
    return pytorch.norm_activate(values, norm, slope, keep)


def can_count(values: Tensor, norms: Iterable[nn.Module]) -> bool:
    """Whether `pointwise` takes ``counts`` for rows on this device with each of the norms."""
    return all(any(side.takes_rows(values, norm) for side in SIDES) for norm in norms)


def group_product(values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One number of each group of channels: x[r, g] . w[g] + b[g]. (R, G * D), (G, D), (G,) -> (R, G)"""
    return (cuda if cuda.trains(values) else pytorch).group_product(values, weight, bias)


def paper_gate(given: Tensor, state: Tensor, gates: Tensor, candidate: Tensor) -> Tensor:
    """`history.PaperGate` from its products with the nodes. (T, ..., 3D), (..., D), (2D, D), (D, D) -> (T, ..., D)"""
    return (cuda if cuda.trains(given) else pytorch).paper_gate(given, state, gates, candidate)


def library_gate(nodes: Tensor, state: Tensor, *weights: Tensor) -> Tensor:
    """`history.LibraryGate` with the four weights of `torch.gru_cell`. (T, ..., D), (..., D) -> (T, ..., D)"""
    return (cuda if cuda.trains(nodes) else pytorch).library_gate(nodes, state, *weights)
