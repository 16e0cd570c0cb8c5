"""Ours beside the published figure: like with like, and what that says of the two.

A difference is judged only between equals: the same protocol, the same backbone or one that may stand for it, and a
head over frozen features that is no worse than nearest centroid on them. Above is no shortfall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from engram.ledger import Answer
from engram.protocol import DEFAULTS, KEYS
from engram.report.cells import Filled
from engram.report.statistics import Difference, Estimate, difference, estimate
from engram.studies.jobs import recipe_called

NEAR = 0.02
"""a difference that is still called within, in fractions of 1"""
ROUNDING = 1e-9
VERDICT_NOTE = (
    "Verdict: ours under the published protocol against the published figure. Within: at most 2 points apart, or each "
    "figure inside the interval of the other. Above is no shortfall. Not comparable: the protocol or the backbone is "
    "another, or a head over frozen features is below nearest centroid on the same tasks and features."
)


@dataclass(frozen=True)
class Beside:
    """The figure that is set beside the paper's, and how far it lies from it."""

    figure: Estimate
    gap: Difference
    """ours minus the paper's, with both intervals, in fractions of 1"""
    answer: Answer
    """where our figure stands"""
    apart: str = ""
    """in what the protocols differ; "" where ours was asked as the paper's, as far as it is known how that was"""
    other: bool = False
    """the cell shows an answer to other questions"""

    @property
    def word(self) -> str:
        """A gap between answers to different questions is neither clear nor noise."""
        return f"protocols differ in {self.apart}" if self.apart else self.gap.word


def against_paper(cell: Filled) -> Beside | None:
    """Ours minus the paper's, from the answers that were asked as the paper's where they are recorded."""
    if cell.estimate is None or not cell.cell.paper:
        return None
    like, ours, answer = list(cell.as_paper.values()), cell.estimate, cell.first[-1]
    other = not all(given in cell.first for given in like)
    if other:
        ours, answer = estimate(cell.values_of(like)), like[-1]
    width = float(np.hypot(ours.interval, cell.cell.interval / 100))
    gap = Difference(ours.mean - cell.cell.paper / 100, width, False, ours.seeds)
    return Beside(ours, gap, answer, "" if like else differing(cell.protocol, cell.cell.paper_ask), other)


def differing(protocol: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """``BatchNorm (task in the paper, running here) and queries per class (5 in the paper, 1 here)``"""
    pairs = [(key, there, protocol.get(key, DEFAULTS.get(key))) for key, there in asked.items()]
    return " and ".join(
        f"{KEYS[key].title or key} ({there} in the paper, {here} here)" for key, there, here in pairs if there != here
    )


@dataclass(frozen=True)
class Verdict:
    kind: Literal["within", "above", "short", "not comparable", "open"]
    """open: it cannot be told yet"""
    words: str

    @property
    def reached(self) -> bool:
        """No shortfall."""
        return self.kind in ("within", "above")


def like_paper(cell: Filled) -> Filled:
    """The cell as it is, or as another recipe fills it that alone was asked as the published one."""
    others = (other for other in (*cell.others, *cell.beside) if other.as_paper)
    found = cell if cell.as_paper else next(others, cell)
    return replace(found, clean=found.clean or cell.clean)


def verdict(cell: Filled) -> Verdict:
    """Of the figure that was asked as the published one; what is not of equals is never called a shortfall."""
    cell = like_paper(cell)
    if not cell.cell.paper:
        return Verdict("open", "no published figure")
    if not (beside := against_paper(cell)):
        return Verdict("open", cell.missing)
    if beside.apart:
        return Verdict("not comparable", f"not comparable: {beside.apart}")
    ours, sheet = cell.recipe.backbone if cell.recipe else "", sheet_backbone(cell)
    if sheet and ours not in (sheet, cell.cell.stand_in):
        return Verdict("not comparable", f"not comparable: backbone ({sheet} published, {ours} here)")
    if cell.frozen and (why := _head_does_not_count(cell)):
        return why
    return judged(beside.gap.mean, beside.figure.interval, cell.cell.interval / 100)


def judged(gap: float, ours: float, published: float) -> Verdict:
    """Of equals: ``gap`` is ours minus the published figure, the others are the half-widths of their intervals."""
    near = max(NEAR, min(ours, published))
    if abs(gap) <= near + ROUNDING:
        return Verdict("within", "within")
    return Verdict("above", "above") if gap > 0 else Verdict("short", f"short by {-100 * gap:.2f}")


def sheet_backbone(cell: Filled) -> str:
    """The backbone of the published figure as its own paper has it: that of the recipe with the whole schedule."""
    return recipe_called(cell.cell.recipe).backbone if cell.cell.recipe and cell.recipe else ""


def _head_does_not_count(cell: Filled) -> Verdict | None:
    if (found := against_centroid(cell)) is None:
        return Verdict("open", "cannot be told: nearest centroid on its features did not answer the same tasks")
    if found.mean < -found.interval:
        return Verdict("not comparable", f"not comparable: below nearest centroid on its features ({found.points})")
    return None


def against_centroid(cell: Filled) -> Difference | None:
    """A head minus nearest centroid on the same features, task by task; None where that is not recorded."""
    if cell.centroid is None:
        return None
    head, centroid = cell.values_of(cell.centroid)
    return difference([head], [centroid], True)
