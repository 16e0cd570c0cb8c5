"""Base classes beside the classes of a task: cosine logits, and who is left when a task borrows some of them."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError

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

    Shapes: (B, n, C), (B, n) -> ()
    """
    counts = columns >= 0
    nll = -F.log_softmax(logits, -1).gather(-1, columns.clamp(min=0)[..., None])[..., 0]
    return (nll * counts).sum() / counts.sum().clamp(min=1)
