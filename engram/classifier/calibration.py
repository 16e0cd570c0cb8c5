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
from engram.classifier.index import Rows
from engram.types import Prediction

if TYPE_CHECKING:
    from engram.classifier.engine import Engine

FOLDS, PLENTY = 5, 500
"""pictures of each class that are held out, one in each turn; turns end earlier with so many pictures of all"""
ENOUGH = 10
"""pictures held out, below which the stored constants stand alone"""
MOST = 2000
"""pictures of the memory that take part"""
TRUST, DOUBT = 5.0, 0.5
"""of the stored temperature: its worth in pictures held out and, in log T, how wrong it may be; one that is wrong by
more is of other pictures, and being wrong by yet more says little"""
GROWTH = {False: 1.5, True: 2.5}
"""how fast a temperature falls with the pictures of a class, without and with a view, which itself learns from them"""
WORTH = 10.0
"""of the stored familiarity, in pictures held out"""
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
    one_each: bool = False
    """constants of a memory with one picture of each class, which does not tell how unlike pictures of a class are"""

    def says(self) -> str:
        """Where the numbers of an answer come from, in words."""
        if not self.held_out:
            if not self.familiarity:
                return "not fitted: take it as an order, not a share"
            guess = "stored for these weights, a guess for pictures unlike theirs"
            if self.one_each:
                guess = "a guess, for there is one picture of each class: stored for these weights"
            return f"{guess}; from {ENOUGH} pictures on, two or more of a class, fitted on them"
        told = f"fitted on {self.held_out} remembered pictures, held out in turn"
        if self.tells_strangers is not None and self.tells_strangers < NO_BETTER:
            told += f"; pictures of other classes cannot be told from these (AUROC {self.tells_strangers:.2f})"
        return told


def scores(prediction: Prediction, each: bool = False) -> Tensor:
    """What a temperature divides, (B, Q, N) or of ``each`` sample (M, B, Q, N): log-probabilities or, where these are
    the shares of votes, the logits of the votes. They rank alike, but all votes may be near 1, and then so are shares.
    """
    if "votes" not in prediction.details:
        return prediction.details["samples"].clamp(min=1e-12).log() if each else prediction.log_probs
    votes = prediction.details["votes"].clamp(1e-12, 1 - 1e-7)
    votes = votes if each else votes.mean(0)
    return votes.log() - (1 - votes).log()


def stored(engine: Engine, n_pictures: int, n_way: int, n_asked: int = 0) -> Calibration:
    """The constants of the weights for that many pictures and classes and, of transductive answers, queries."""
    shots, asked = n_pictures / n_way, n_asked / n_way
    temperature = fitted_at(engine.temperatures, shots, n_way, asked)[0] if engine.temperatures else 1.0
    if not (engine.by_features and engine.familiarities):
        return Calibration(temperature)
    slope, offset = fitted_at(engine.familiarities, shots, n_way)
    return Calibration(temperature, (slope, offset), one_each=n_pictures == n_way)


def calibrate(
    engine: Engine, items: Tensor | Rows, labels: Tensor, n_way: int, query: Tensor | None = None
) -> Calibration:
    """From the memory (S, ...), (S,) where it is large enough, else `stored`.

    Transductive answers depend on what is asked with them, so pictures held out are asked among the ``query``.
    """
    company = items[:0] if query is None or not engine.transductive else query
    n_pictures = len(labels)
    at_hand = stored(engine, n_pictures, n_way, len(company))
    if not engine.by_features or engine.method.card.fixed_shots or (engine.transductive and not len(company)):
        return at_hand
    place = _place_in_class(labels)
    taken = place < max(2, MOST // n_way)
    items, labels, place = items[taken], labels[taken], place[taken]
    items = items.float() if items.dtype == torch.float16 else items
    place[torch.bincount(labels, minlength=n_way)[labels] < 2] = FOLDS  # the only one of a class stays
    if int((place < FOLDS).sum()) < ENOUGH:
        return at_hand
    turns, found, alike, own = _held_out(engine, items, labels, place, company, n_way)
    left = len(labels) - len(own) / turns
    folded = stored(engine, int(left), n_way, int(len(company) + len(own) / turns))
    growth = _grown(found, own, left / n_way, n_pictures / n_way, GROWTH[engine.view])
    temperature = growth * _temperature(found, own, folded.temperature)
    known, strange = alike.amax(-1), alike.scatter(1, own[:, None], -torch.inf).amax(-1)
    if n_way < 3:  # one class left is no company in which to be strange
        return Calibration(temperature, at_hand.familiarity, len(own))
    now, then = at_hand.familiarity or (0.0, 0.0), folded.familiarity or (0.0, 0.0)
    slope, offset = _logistic(known, strange, then)
    familiarity = slope + now[0] - then[0], offset + now[1] - then[1]
    return Calibration(temperature, familiarity, len(own), _area(known, strange))


def _held_out(
    engine: Engine, items: Tensor | Rows, labels: Tensor, place: Tensor, company: Tensor, n_way: int
) -> tuple[int, Tensor, Tensor, Tensor]:
    """The number of turns, and of the H pictures asked about in them scores and likeness (H, N) and classes (H,)."""
    found, likeness, own = list[Tensor](), list[Tensor](), list[Tensor]()
    for fold in range(FOLDS):
        out = place == fold
        if not out.any() or sum(map(len, own)) >= PLENTY:
            break
        parts = engine.compare(items[~out], labels[~out], torch.cat([items[out], company]), n_way)
        for kept, part in zip((found, likeness), parts, strict=True):
            kept.append(part[: int(out.sum())])
        own.append(labels[out])
    return len(own), torch.cat(found), torch.cat(likeness), torch.cat(own)


def _place_in_class(labels: Tensor) -> Tensor:
    """(S,) how many pictures of the same class came after each: the newest has 0."""
    order = torch.argsort(labels.flip(0), stable=True)
    counts = torch.bincount(labels)
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    place = torch.empty_like(labels)
    place[order] = torch.arange(len(labels)) - starts
    return place.flip(0)


def _temperature(found: Tensor, truth: Tensor, prior: float) -> float:
    """argmin_T -sum log p_y + (sum max p - r)^2 / 2 sum max p (1 - max p) + TRUST w^2 log(1 + (log T / T_0)^2 / w^2).

    Answers are likely; on average as sure as they are right, r being their number as if half of one more were; and not
    far from the prior T_0, w = DOUBT. Over a grid.
    """
    steps, cost = torch.linspace(-6, 6, 241), []
    right = ((found.argmax(-1) == truth).sum() + 0.5) * len(truth) / (len(truth) + 1)
    for step in steps:
        log_probs = (found / (prior * step.exp())).log_softmax(-1)
        sure = log_probs.amax(-1).exp()
        gap = (sure.sum() - right).square() / (2 * (sure * (1 - sure)).sum().clamp(min=0.25))
        cost.append(gap - log_probs.gather(1, truth[:, None]).sum())
    against = TRUST * DOUBT**2 * (steps / DOUBT).square().log1p()
    return prior * float(steps[(torch.stack(cost) + against).argmin()].exp())


def _grown(found: Tensor, truth: Tensor, left: float, shots: float, rate: float) -> float:
    """T_k / T_l, from l pictures of a class, which were left, to k: T_k ~ 1 + c / k, c = rate s / d.

    Means of more pictures vary less. That matters the more, the less the score of the right class leads those of the
    others: d is its lead, s is their spread.
    """
    own = found.gather(1, truth[:, None])
    others = found[torch.ones_like(found, dtype=torch.bool).scatter(1, truth[:, None], False)]
    lead = float((own.mean() - others.mean()) / others.std().clamp(min=1e-9))
    change = rate / max(lead, 0.3)
    return (1 + change / shots) / (1 + change / left)


def _logistic(known: Tensor, strange: Tensor, prior: tuple[float, float]) -> tuple[float, float]:
    """Slope and offset of "known" on the likeness by Newton's method, with WORTH pictures' worth of the stored ones:
    pseudo-pictures over the range of scores, answered as the prior answers."""
    scores = torch.cat([known, strange]).double()
    middle, width = scores.mean(), scores.std().clamp(min=1e-9)  # likenesses may lie close together
    targets = torch.cat([torch.ones_like(known), torch.zeros_like(strange)]).double()
    x = torch.stack([(scores - middle) / width, torch.ones_like(scores)], 1).repeat(2, 1)
    y = torch.cat([targets, torch.sigmoid(prior[0] * scores + prior[1])])
    worth = torch.cat([torch.ones_like(scores), torch.full_like(scores, WORTH / len(scores))])
    weights = torch.zeros(2, dtype=torch.float64)
    for _ in range(30):
        p = torch.sigmoid(x @ weights)
        curvature = x.T @ (x * (worth * p * (1 - p))[:, None]) + 1e-6 * torch.eye(2, dtype=torch.float64)
        weights = weights + torch.linalg.solve(curvature, x.T @ (worth * (y - p)))
    slope = weights[0] / width
    return float(slope), float(weights[1] - slope * middle)


def _area(known: Tensor, strange: Tensor) -> float:
    """Share of pairs in which the known picture is more alike, ties counted half."""
    order = strange.sort().values
    below = torch.searchsorted(order, known, right=False) + torch.searchsorted(order, known, right=True)
    return float(below.double().mean() / (2 * len(strange)))
