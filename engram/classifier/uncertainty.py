"""What a model does not know of a picture, and what the picture itself leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from engram.classifier.engine import Answer


class Uncertainty(NamedTuple):
    """Entropies in nats, one number for each picture; ``total`` is the sum of the other two."""

    total: np.ndarray
    """H(mean_m p_m): how open the answer is"""
    epistemic: np.ndarray
    """H(mean_m p_m) - mean_m H(p_m): what the model does not know, which more pictures of the classes would settle"""
    aleatoric: np.ndarray
    """mean_m H(p_m): what the picture itself leaves open"""


def split_entropy(answer: Answer) -> Uncertainty:
    """What a model does not know and what a picture leaves open, from M draws p_m of the posterior, in an `Answer` that
    was asked for them."""
    assert answer.samples is not None
    drawn = answer.samples.double()
    total, aleatoric = _entropy(drawn.mean(0)), _entropy(drawn).mean(0)
    return Uncertainty(total.numpy(), (total - aleatoric).clamp(min=0).numpy(), aleatoric.numpy())


def _entropy(probabilities: Tensor) -> Tensor:
    """H(p) over the last axis, in nats."""
    return torch.special.entr(probabilities).sum(-1)
