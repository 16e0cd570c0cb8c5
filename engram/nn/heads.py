"""Parts that several classification heads share: pooling by label, never by position; distances; base classes beside
those of a task, and who is left when a task borrows some of them; label propagation in closed form."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram import processes
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


MOMENTUM = 0.01
"""of a mean that is followed"""


@torch.no_grad()
def follow_mean(mean: Tensor, batches_seen: Tensor, features: Tensor) -> None:
    """Take a batch into a mean in place: a plain average over the first 1 / momentum batches, a moving one after.

    Shapes: (d,), (), (n, d)
    """
    batches_seen += 1
    mean.lerp_(features.mean(0), (1 / batches_seen).clamp(min=MOMENTUM))


BaseStart = Literal["random", "stage_one"]
"""What the rows of the base classes begin as: drawn from the seed, or the cosine classifier that stage one learnt."""


def cosine_logits(features: Tensor, weights: Tensor, scale: Tensor | float) -> Tensor:
    """scale * cos(z, w): (..., n, d), (..., C, d) -> (..., n, C)"""
    return scale * F.normalize(features, dim=-1) @ F.normalize(weights, dim=-1).transpose(-1, -2)


def random_weights(n_classes: int, width: int) -> nn.Parameter:
    """A classifier's rows before training, N(0, 2 / d): (C, d)"""
    return nn.Parameter(torch.randn(n_classes, width) * (2 / width) ** 0.5)


def set_aside(class_ids: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """What is left of C base classes when each task takes N of them as its own.

    Shapes: (B, N) distinct ids -> kept (B, C - N) in rising order, and column (B, C) of each class among the kept, -1
    for those set aside. No shape depends on the numbers, so nothing waits for the device.
    """
    if class_ids.shape[1] >= n_classes:
        raise EngramError(
            f"[data] n_way = {class_ids.shape[1]} but only {n_classes} base classes (n_base_classes) are there to take "
            f"them from: lower n_way"
        )
    aside = torch.zeros(len(class_ids), n_classes, dtype=torch.bool, device=class_ids.device)
    aside = aside.scatter(1, class_ids, torch.ones_like(class_ids, dtype=torch.bool))
    kept = aside.int().argsort(dim=1, stable=True)[:, : n_classes - class_ids.shape[1]]
    return kept, ((~aside).cumsum(1) - 1).masked_fill(aside, -1)


def joint_nll(logits: Tensor, columns: Tensor) -> Tensor:
    """Mean cross-entropy over base and novel columns; column -1 is a class that was set aside and does not count.

    Of several processes each divides by the mean of what they count, so that all queries weigh the same.

    Shapes: (B, n, C), (B, n) -> ()
    """
    counts = columns >= 0
    nll = -F.log_softmax(logits, -1).gather(-1, columns.clamp(min=0)[..., None])[..., 0]
    return (nll * counts).sum() / processes.mean(counts.sum()).clamp(min=1)


TIE = 1e-6
"""cosines closer than this count as equal, so that rounding never chooses a neighbour"""


def neighbour_graph(nodes: Tensor, present: Tensor, k: int, temperature: float) -> Tensor:
    """Symmetric ties between near nodes, normalised: S = D^-1/2 W D^-1/2.

    W_ij = exp((cos_ij - 1) / temperature) where i is among the k nearest of j or j among those of i, else 0; ties with
    the k-th are in; no node is its own neighbour, and absent nodes have none.

    Shapes: nodes (B, M, d) unit vectors, present (B, M) bool -> (B, M, M)
    """
    cosine = nodes @ nodes.transpose(1, 2)
    size = nodes.shape[1]
    pairs = present[:, :, None] & present[:, None, :] & ~torch.eye(size, dtype=torch.bool, device=nodes.device)
    ranked = torch.where(pairs, cosine.detach(), -torch.inf)
    least = ranked.topk(min(k, size), -1).values[..., -1:]
    near = (ranked >= least - TIE) & pairs
    weights = torch.where(near | near.transpose(1, 2), ((cosine - 1) / temperature).exp(), 0)
    scale = weights.sum(-1).clamp(min=torch.finfo(nodes.dtype).tiny).rsqrt()
    return scale[:, :, None] * weights * scale[:, None, :]


def propagate(graph: Tensor, labels: Tensor, alpha: float) -> Tensor:
    """F = (I - alpha S)^-1 Y: (B, M, M), (B, M, n) -> (B, M, n). Positive definite, for S has no eigenvalue above 1."""
    identity = torch.eye(graph.shape[1], dtype=graph.dtype, device=graph.device)
    factor = torch.linalg.cholesky_ex(identity - alpha * graph).L  # unchecked: a check would wait for the device
    return torch.cholesky_solve(labels, factor)
