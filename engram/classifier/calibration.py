"""How sure an answer may be: a temperature of its probabilities and a scale of familiarity, from what is remembered.

Remembered pictures are held out in turn and asked about, of each with its class still known and as if it were not. What
they show is weighed against the stored constants of the weights, which stand alone where too little is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engram.classifier.box import fitted_at
from engram.classifier.rows import Rows

if TYPE_CHECKING:
    from engram.classifier.engine import Engine

FOLDS = 5
"""pictures of each class that are held out, one in each turn"""
ENOUGH = 20
"""pictures held out, below which the stored constants stand alone"""
MOST = 2000
"""pictures of the memory that take part"""
TRUST = 10.0
"""in pictures held out: what the stored constants are worth beside them"""
NO_BETTER = 0.6
"""area under the ROC curve below which familiarity is said not to tell strangers"""


@dataclass(frozen=True)
class Calibration:
    temperature: float = 1.0
    familiarity: tuple[float, float] | None = None
    """slope and offset of the logit on the largest likeness; None: the largest class probability stands in"""
    held_out: int = 0
    """pictures of the memory it was fitted on; 0: stored constants, or none"""
    tells_strangers: float | None = None
    """area under the ROC curve of familiarity on pictures held out with and without their class; None: not measured"""

    def says(self) -> str:
        """Where the numbers of an answer come from, in words."""
        if not self.held_out:
            fitted = "stored for these weights" if self.familiarity else "not fitted: take it as an order, not a share"
            return fitted
        told = f"fitted on {self.held_out} remembered pictures, held out in turn"
        if self.tells_strangers is not None and self.tells_strangers < NO_BETTER:
            told += f"; pictures of other classes cannot be told from these (AUROC {self.tells_strangers:.2f})"
        return told


def stored(engine: Engine, n_pictures: int, n_way: int, n_asked: int = 0) -> Calibration:
    """The constants of the weights for that many pictures and classes and, of transductive answers, queries."""
    shots, asked = n_pictures / n_way, n_asked / n_way
    temperature = fitted_at(engine.temperatures, shots, n_way, asked)[0] if engine.temperatures else 1.0
    if not (engine.by_features and engine.familiarities):
        return Calibration(temperature)
    slope, offset = fitted_at(engine.familiarities, shots, n_way)
    return Calibration(temperature, (slope, offset))


def calibrate(
    engine: Engine, items: Tensor | Rows, labels: Tensor, n_way: int, query: Tensor | None = None
) -> Calibration:
    """From the memory (S, ...), (S,) where it is large enough, else `stored`.

    Transductive answers depend on what is asked with them, so pictures held out are asked among the ``query``.
    """
    company = items[:0] if query is None or not engine.transductive else query
    at_hand = stored(engine, len(labels), n_way, len(company))
    if not engine.view or (engine.transductive and not len(company)):
        return at_hand
    place = _place_in_class(labels)
    taken = place < max(2, MOST // n_way)
    items, labels, place = items[taken], labels[taken], place[taken]
    items = items.float() if items.dtype == torch.float16 else items
    several = torch.bincount(labels, minlength=n_way)[labels] > 1
    if int((several & (place < FOLDS)).sum()) < ENOUGH:
        return at_hand
    log_probs, likeness, truth = [], [], []
    for fold in range(FOLDS):
        out = several & (place == fold)
        if out.any():
            asked = torch.cat([items[out], company])
            answer, alike = engine.compare(items[~out], labels[~out], asked, n_way)
            log_probs.append(answer[: int(out.sum())])
            likeness.append(alike[: int(out.sum())])
            truth.append(labels[out])
    found, alike, own = torch.cat(log_probs), torch.cat(likeness), torch.cat(truth)
    turn = len(own) / FOLDS
    folded = stored(engine, int(len(labels) - turn), n_way, int(len(company) + turn))
    assert at_hand.familiarity and folded.familiarity
    temperature = _temperature(found, own, folded.temperature) * at_hand.temperature / folded.temperature
    known, strange = alike.amax(-1), alike.scatter(1, own[:, None], -torch.inf).amax(-1)
    if n_way < 3:  # one class left is no company in which to be strange
        return Calibration(temperature, at_hand.familiarity, len(own))
    slope, offset = _logistic(known, strange, folded.familiarity)
    more = [now - then for now, then in zip(at_hand.familiarity, folded.familiarity, strict=True)]
    return Calibration(temperature, (slope + more[0], offset + more[1]), len(own), _area(known, strange))


def _place_in_class(labels: Tensor) -> Tensor:
    """(S,) how many pictures of the same class came after each: the newest has 0."""
    order = torch.argsort(labels.flip(0), stable=True)
    counts = torch.bincount(labels)
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    place = torch.empty_like(labels)
    place[order] = torch.arange(len(labels)) - starts
    return place.flip(0)


def _temperature(log_probs: Tensor, truth: Tensor, prior: float) -> float:
    """argmin_T -sum log softmax(log p / T) + TRUST (log T / T_0)^2 over a grid of log T."""
    grid = torch.linspace(-3.5, 3.5, 281).exp() * prior
    nll = torch.stack([-(log_probs / t).log_softmax(-1).gather(1, truth[:, None]).sum() for t in grid])
    return float(grid[(nll + TRUST * (grid / prior).log().square()).argmin()])


def _logistic(known: Tensor, strange: Tensor, prior: tuple[float, float]) -> tuple[float, float]:
    """Slope and offset of "known" on the likeness by Newton's method, with TRUST pictures' worth of the stored ones:
    pseudo-pictures over the range of scores, answered as the prior answers."""
    scores = torch.cat([known, strange]).double()
    targets = torch.cat([torch.ones_like(known), torch.zeros_like(strange)]).double()
    start = torch.tensor(prior, dtype=torch.float64)
    x = torch.stack([torch.cat([scores, scores]), torch.ones(2 * len(scores), dtype=torch.float64)], 1)
    y = torch.cat([targets, torch.sigmoid(x[: len(scores)] @ start)])
    worth = torch.cat([torch.ones_like(scores), torch.full_like(scores, TRUST / len(scores))])
    weights = start.clone()
    for _ in range(30):
        p = torch.sigmoid(x @ weights)
        curvature = x.T @ (x * (worth * p * (1 - p))[:, None]) + 1e-6 * torch.eye(2, dtype=torch.float64)
        weights = weights + torch.linalg.solve(curvature, x.T @ (worth * (y - p)))
    return float(weights[0]), float(weights[1])


def _area(known: Tensor, strange: Tensor) -> float:
    """Share of pairs in which the known picture is more alike, ties counted half."""
    order = strange.sort().values
    below = torch.searchsorted(order, known, right=False) + torch.searchsorted(order, known, right=True)
    return float(below.double().mean() / (2 * len(strange)))
