"""Which pictures to label next: those whose labels would teach most about all the others.

What is known of a picture is modelled as a Gaussian process over features, conditioned on what is remembered: its
variance S is what the model does not know, whatever a picture itself leaves open. A label at x lowers the variance of
every picture j; weighed by w_j, how undecided the answer to it is (1 less the lead of the best class), that is worth

    gain(x) = sum_j w_j S_xj^2 / (S_xx + noise),   S = K_PP - K_PL (K_LL + noise)^-1 K_LP,   K_xy = max(0, cos(x, y))^2

The best picture is taken, S is conditioned on it, and so on: of pictures that are alike one is asked about.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from engram.classifier.engine import Answer
from engram.classifier.reading import looked_at
from engram.errors import EngramError

if TYPE_CHECKING:
    from engram.classifier.estimator import FewShotClassifier

NOISE = 1.0
"""of a label, in variances of a picture: one picture never tells all of its neighbours"""
ALIKE = 0.9
"""K of pictures so much alike that the second is asked about only when nothing else is left"""
MOST = 2000
"""pictures that are compared with each other: of new ones the least decided, of remembered ones the newest"""


def suggest(classifier: FewShotClassifier, seen: Tensor, count: int) -> np.ndarray:
    """Places among pictures (n, ...), as `see` gives them: at most ``count``, the one that teaches most first."""
    if count < 1:
        raise EngramError(f"count = {count} but at least 1 picture must be suggested")
    engine, memory = classifier.engine_, classifier.memory_
    if not len(seen):
        return np.zeros(0, dtype=np.int64)
    worth = _undecided(classifier.answer(seen))
    order = worth.argsort(descending=True, stable=True)
    if engine.method.card.transductive and memory.exact:  # the pictures are a set: they may inform each other
        together = replace(engine, transductive=True).answer(
            memory.items[:], memory.labels, seen[order[:MOST]], len(memory.classes)
        )
        worth[order[:MOST]] = _undecided(together)
    newest = memory.rows[slice(-MOST, None)].float()
    pool, known = (looked_at(engine, memory, part) for part in (seen[order[:MOST]], newest))
    chosen = spread(pool, known, worth[order[:MOST]], min(count, len(pool)))
    return torch.cat([order[chosen], order[MOST:]])[:count].numpy()


def _undecided(answer: Answer) -> Tensor:
    """(n,) 1 less what separates the probabilities of the best two classes."""
    best, second = answer.log_probs.exp().topk(2).values.T
    return 1 - (best - second)


def spread(pool: Tensor, known: Tensor, worth: Tensor, count: int) -> Tensor:
    """Rows of the pool (P, d) in the order of their gain; known (L, d), both unit vectors, worth (P,) -> (count,)"""
    alike, told = _kernel(pool, pool), _kernel(known, pool)
    noise = NOISE * torch.eye(len(known))
    rest = alike - told.T @ torch.linalg.solve(_kernel(known, known) + noise, told)
    again = told.amax(0) > ALIKE
    chosen: list[int] = []
    for _ in range(count):
        gain = (rest.square() @ worth) / (rest.diagonal() + NOISE)
        gain[again] -= 2 * gain.max() + 1
        gain[chosen] = -torch.inf
        best = int(gain.argmax())
        chosen.append(best)
        again |= alike[best] > ALIKE
        rest = rest - torch.outer(rest[best], rest[best]) / (rest[best, best] + NOISE)
    return torch.tensor(chosen, dtype=torch.int64)


def _kernel(one: Tensor, other: Tensor) -> Tensor:
    return (one @ other.T).clamp(min=0).square()
