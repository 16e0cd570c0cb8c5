"""Parts that several classification heads share; all pool by label, never by position."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from engram.errors import EngramError

Distance = Literal["euclidean", "cosine"]


def check_ways(given: int, built_for: int, head: str) -> None:
    """One sentence where a head whose weights are tied to the number of classes meets another number."""
    if given != built_for:
        raise EngramError(
            f"{head} was built for {built_for} ways but the task has {given}: its weights are tied to the ways, so ask "
            f"{built_for}-way tasks or train with [method] n_way = {given}"
        )


def one_hot(labels: Tensor, n_way: int) -> Tensor:
    """(..., S) labels with -1 for unlabelled -> (..., S, n_way) float; an unlabelled row is all zeros."""
    return F.one_hot(labels.clamp(min=0), n_way).float() * (labels >= 0)[..., None]


def class_means(features: Tensor, labels: Tensor, n_way: int) -> Tensor:
    """Mean feature of each class over its labelled members: (B, S, d), (B, S) -> (B, n_way, d)."""
    members = one_hot(labels, n_way).to(features.dtype).transpose(-1, -2)
    return members @ features / members.sum(-1, keepdim=True).clamp(min=1)


def class_sums(features: Tensor, labels: Tensor, n_way: int) -> Tensor:
    """Sum of the features of each class's labelled members: (B, S, d), (B, S) -> (B, n_way, d)."""
    return one_hot(labels, n_way).to(features.dtype).transpose(-1, -2) @ features


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """|a_i - b_j|^2 written out: (B, n, d), (B, m, d) -> (B, n, m). (`torch.cdist` has a singular gradient at zero.)"""
    return a.square().sum(-1, keepdim=True) - 2 * a @ b.transpose(-1, -2) + b.square().sum(-1)[..., None, :]


def distances(a: Tensor, b: Tensor, kind: Distance) -> Tensor:
    """Squared Euclidean distance, or 1 - cosine: (B, n, d), (B, m, d) -> (B, n, m)."""
    if kind == "euclidean":
        return squared_distances(a, b)
    return 1 - F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).transpose(-1, -2)
