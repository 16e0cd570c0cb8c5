"""Networks on the pairs of a graph's nodes, each pair once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engram.nn import kernels
from engram.nn.graph import PointwiseNet


class Pairs(NamedTuple):
    """The pairs i <= j of V nodes."""

    chosen: Tensor
    """(P,): where they stand among all V * V"""
    place: Tensor
    """(V * V,): which of them serves each of all"""
    counts: kernels.Counts
    """2 for a pair of two, 1 for a node with itself"""


_known: dict[tuple[int, torch.device], Pairs] = {}


def pairs_of(size: int, device: torch.device) -> Pairs:
    """Made once for a size and a device."""
    if isinstance(size, int) and (size, device) in _known:  # a traced program may have a symbol for it
        return _known[size, device]
    with torch.inference_mode(False):
        first, second = torch.triu_indices(size, size, device=device)
        place = torch.empty(size, size, dtype=torch.long, device=device)
        place[first, second] = place[second, first] = torch.arange(len(first), device=device)
        counts = kernels.Counts(2.0 - (first == second).float(), size * size)
        made = Pairs(first * size + second, place.flatten(), counts)
    # What is made while a graph is captured or a program traced belongs to that graph or program, and an audit that
    # asks in double precision gets float64, which kernels cannot read.
    captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    is_common = isinstance(size, int) and type(place) is Tensor and counts.each.dtype is torch.float32
    if is_common and not captured:
        _known[size, device] = made
    return made


def on_pairs(net: PointwiseNet, pairs: Tensor) -> Tensor:
    """``net`` on symmetric pairs: i-j passes it for j-i too, and counts twice in the statistics of training.

    Ordinary modules cannot count, so in training without kernels of our own all pairs pass. Dropout takes the same
    channels of both anyway. Shapes: (N, V, V, d) -> (N, V, V, outputs)
    """
    answers: Tensor
    if net.training and not kernels.can_count(pairs, net.norms):
        answers = net(pairs)
        return answers
    size = pairs.shape[1]
    known = pairs_of(size, pairs.device)
    once = pairs.flatten(1, 2).index_select(1, known.chosen)
    answers = net(once, known.counts if net.training else None)
    return answers.index_select(1, known.place).unflatten(1, (size, size))
