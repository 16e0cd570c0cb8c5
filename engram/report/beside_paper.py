"""Ours beside the paper's figure: like with like, or in what the two were asked differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engram.ledger import Answer, correctness
from engram.protocol import DEFAULTS, KEYS
from engram.report.statistics import Difference, Estimate, estimate
from engram.report.study.cells import Filled, measured

BESIDE_NOTE = (
    "In brackets ours minus the paper's, from the same weights asked as the paper's figure was (BatchNorm statistics, "
    "queries per class, order of slots, as far as these are known); where that is not recorded, in what the protocols "
    "differ."
)


@dataclass(frozen=True)
class Beside:
    """The figure that is set beside the paper's, and how far it lies from it."""

    gap: Difference
    """ours minus the paper's, with both intervals, in fractions of 1"""
    apart: str = ""
    """in what the protocols differ; "" where ours was asked as the paper's, as far as it is known how that was"""
    figure: Estimate | None = None
    """ours asked as the paper's, where the cell shows an answer to other questions"""
    answer: Answer | None = None
    """where that figure stands"""

    @property
    def word(self) -> str:
        """A gap between answers to different questions is neither clear nor noise."""
        return f"protocols differ in {self.apart}" if self.apart else self.gap.word


def against_paper(cell: Filled) -> Beside | None:
    """Ours minus the paper's, from the answers that were asked as the paper's where they are recorded."""
    if cell.estimate is None or not cell.cell.paper:
        return None
    like = list(cell.as_paper.values())
    if not like:
        return Beside(_gap(cell, cell.estimate), apart=differing(cell.protocol, cell.cell.paper_ask))
    if all(answer in cell.first for answer in like):
        return Beside(_gap(cell, cell.estimate))
    found = estimate([measured(correctness(a.evaluation, cell.folder), cell.cell.measure) for a in like])
    return Beside(_gap(cell, found), figure=found, answer=like[-1])


def _gap(cell: Filled, ours: Estimate) -> Difference:
    width = float(np.hypot(ours.interval, cell.cell.interval / 100))
    return Difference(ours.mean - cell.cell.paper / 100, width, False, ours.seeds)


def differing(protocol: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """``BatchNorm (task in the paper, running here) and queries per class (5 in the paper, 1 here)``"""
    pairs = [(key, there, protocol.get(key, DEFAULTS.get(key))) for key, there in asked.items()]
    return " and ".join(
        f"{KEYS[key].title or key} ({there} in the paper, {here} here)" for key, there, here in pairs if there != here
    )
