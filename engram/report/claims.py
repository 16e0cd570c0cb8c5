"""What the paper claims, what we find: a verdict for each claim, computed from records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import hypot

from engram.ledger import Ledger, RunRecord
from engram.report.audits import effect_text
from engram.report.cells import CellMap, Filled, compare, scale_text
from engram.report.statistics import Difference, spread_ratio_is_clear
from engram.report.table import Column, Table, percent
from engram.studies.claims import Claim, ClaimTest

Cells = Mapping[str, CellMap]
"""of each study"""
CONFIRMED, NOT_CONFIRMED, NOT_TESTABLE = "confirmed", "not confirmed", "not testable here"
UNDECIDED = "cannot be decided"
VALIDATION = ("iteration", "validation_accuracy", "validation_interval")
"""curves of a record"""
VERDICTS = (CONFIRMED, NOT_CONFIRMED, UNDECIDED, NOT_TESTABLE)
NOTE = (
    "Confirmed: every deciding test shows the effect outside its 95 % interval. Not confirmed: the records show no "
    "such effect at the scale they were run at, which the finding states, or an interval without the paper's "
    "difference. Cannot be decided: it was measured, but the noise allows both answers. Not testable here: a record is "
    "missing, or nothing measures it."
)


@dataclass(frozen=True)
class TestResult:
    shown: bool | None
    """None = cannot be told"""
    words: str
    measured: bool = True
    """false: a record is missing"""


@dataclass(frozen=True)
class Finding:
    claim: Claim
    verdict: str
    words: str


def findings(claims: Sequence[Claim], cells: Cells, ledger: Ledger) -> list[Finding]:
    found = []
    for claim in claims:
        results = [(test, _result(test, cells, ledger)) for test in claim.tests]
        deciding = [result for test, result in results if test.decides]
        words = dict.fromkeys(result.words for test, result in results if test.decides or result.measured)
        found.append(Finding(claim, _verdict(deciding), "; ".join([*words, *([claim.why] if claim.why else [])])))
    return found


def _verdict(deciding: Sequence[TestResult]) -> str:
    if not deciding or not all(r.measured for r in deciding):
        return NOT_TESTABLE
    if any(r.shown is False for r in deciding):
        return NOT_CONFIRMED
    return CONFIRMED if all(r.shown for r in deciding) else UNDECIDED


def _result(test: ClaimTest, cells: Cells, ledger: Ledger) -> TestResult:
    if test.kind == "audit":
        return _audit(test, ledger)
    first = cells[test.study][test.first, test.column]
    second = cells[test.study][test.second, test.second_column or test.column] if test.second else None
    for cell in (first, second):
        if cell is not None and not cell.answers:
            command = f" (`{cell.command}`)" if cell.command else ""
            return TestResult(None, f"{cell.row}, {cell.cell.column}: {cell.missing}{command}", measured=False)
    label = f"{test.label}: " if test.label else ""
    if test.kind == "reaches":
        return _reaches(test, first, label)
    if test.kind == "early":
        return _early(first, ledger, label)
    assert second is not None
    return _steadier(first, second, label) if test.kind == "steadier" else _higher(test, first, second, label)


def _scale(*cells: Filled) -> str:
    return f" ({'; '.join(dict.fromkeys(scale_text(cell) for cell in cells))})"


def _told(effect: float, interval: float, claimed: float) -> bool | None:
    """Whether an effect is there; None where its interval holds both nothing and what is claimed, if only above 0."""
    if effect > interval:
        return True
    return False if effect < -interval or effect + interval < claimed else None


def _higher(test: ClaimTest, first: Filled, second: Filled, label: str) -> TestResult:
    papers = first.cell.paper, second.cell.paper
    claimed = test.claimed / 100 or ((papers[0] - papers[1]) / 100 if all(papers) else 0.0)
    compared = compare(first, second)
    assert compared is not None
    first, second, found = compared
    columns = f"{first.row}, {first.cell.column} minus {second.cell.column}: "
    name = label or (columns if first.row == second.row else f"{first.row} minus {second.row}: ")
    words = f"{name}{found.points} points, {found.word}{'' if found.paired else ', not paired'}"
    return TestResult(_told(found.mean, found.interval, claimed), f"{words}{_scale(first, second)}")


def _reaches(test: ClaimTest, cell: Filled, label: str) -> TestResult:
    assert cell.estimate is not None
    figure = f"{percent(cell.estimate.mean, cell.estimate.interval)} %"
    shown = 100 * (cell.estimate.mean + cell.estimate.interval) >= cell.cell.paper - test.within
    return TestResult(shown, f"{label or f'{cell.row}: '}{figure} against {cell.cell.paper:.2f}{_scale(cell)}")


def _steadier(first: Filled, second: Filled, label: str) -> TestResult:
    """The spread over seeds, where each has two seeds or more."""
    spreads = [c.estimate.seed_deviation if c.estimate else None for c in (first, second)]
    if spreads[0] is None or spreads[1] is None:
        words = f"{first.row} and {second.row} have one seed each, which shows no spread"
        return TestResult(None, words, measured=False)
    seeds = len(first.first), len(second.first)
    smaller = spreads[0] < spreads[1] and spread_ratio_is_clear(spreads[1], spreads[0], *reversed(seeds))
    larger = spreads[1] < spreads[0] and spread_ratio_is_clear(spreads[0], spreads[1], *seeds)
    words = f"spread over seeds {100 * spreads[0]:.2f} against {100 * spreads[1]:.2f} points"
    clear = "clear" if smaller or larger else "inside the noise"
    return TestResult(smaller or (False if larger else None), f"{label}{words}, {clear}{_scale(first, second)}")


def _early(cell: Filled, ledger: Ledger, label: str) -> TestResult:
    """The best validation of the first half of training lies above that of the second half, for every seed."""
    assert cell.recipe is not None
    halves = [best_of_halves(run) for run in ledger.trainings(cell.recipe).values()]
    known = [pair for pair in halves if pair]
    if not known:
        words = f"{cell.row}: no validation over both halves of training is recorded"
        return TestResult(None, words, measured=False)
    gaps = [Difference(a[0] - b[0], hypot(a[1], b[1]), False, 1) for a, b in known]
    later = any(gap.mean < -gap.interval for gap in gaps)
    shown = True if all(gap.mean > gap.interval for gap in gaps) else False if later else None
    told = ", ".join(
        f"{percent(*a)} % in the first half of training, {percent(*b)} % in the second: {gap.points}, {gap.word}"
        for (a, b), gap in zip(known, gaps, strict=True)
    )
    return TestResult(shown, f"{label}best validation {told}{_scale(cell)}")


def best_of_halves(run: RunRecord) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """The best validation of each half of training with its interval; None where a half has none."""
    looks = zip(*(run.curves.get(key) or [] for key in VALIDATION), strict=False)
    halves: tuple[list[tuple[float, float]], ...] = ([], [])
    for iteration, accuracy, interval in looks:
        if accuracy is not None and interval is not None:
            halves[2 * iteration > run.training["iterations"]].append((accuracy, interval))
    return (max(halves[0]), max(halves[1])) if halves[0] and halves[1] else None


def _audit(test: ClaimTest, ledger: Ledger) -> TestResult:
    audit = ledger.audits(lambda record: record.recipe_today).get(test.recipe)
    found = [f for f in audit.audit if f["probe"] == test.probe] if audit else []
    if not found or found[0]["effect"] is None:
        return TestResult(None, f"no audit of {test.recipe} has the probe '{test.probe}'", measured=False)
    effect, bound = found[0]["effect"], found[0]["bound"]
    clear = "clear" if abs(effect) > bound else "inside the noise"
    words = f"{test.label or test.probe}: {effect_text(found[0])}, {clear}"
    return TestResult(_told(effect, bound, test.claimed / 100), words)


def _drawn(finding: Finding) -> str:
    kind = {CONFIRMED: "good", NOT_CONFIRMED: "bad"}.get(finding.verdict, "none")
    return f'<span class="verdict {kind}">{finding.verdict}</span>'


CLAIM_COLUMNS: tuple[Column[Finding], ...] = (
    Column(
        "The paper claims",
        lambda f: f.claim.text,
        html=lambda f: f'{escape(f.claim.text)}<span class="note">{escape(f.claim.where)}</span>',
    ),
    Column("Where", lambda f: f.claim.where, places=("docs",)),
    Column("Verdict", lambda f: f"**{f.verdict}**" if f.verdict != NOT_TESTABLE else f.verdict, html=_drawn),
    Column("What we find", lambda f: f.words),
)


def claims_table(found: Sequence[Finding], place: str) -> Table[Finding]:
    """For a page of the ``docs``, or for the ``report``."""
    counts = ", ".join(f"{sum(f.verdict == verdict for f in found)} {verdict}" for verdict in VERDICTS)
    return Table(CLAIM_COLUMNS, found, place, f"{counts}.", NOTE)
