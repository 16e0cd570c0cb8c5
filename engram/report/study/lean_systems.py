"""The short table of the README: each system once, published beside ours under the same protocol."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engram.ledger import record_path
from engram.report.beside_paper import against_paper
from engram.report.columns import markdown_table
from engram.report.statistics import Estimate
from engram.report.study.cells import Filled
from engram.studies.schema import Study

HEADER = ("System", "Published", "Ours", "Trained")
COLUMN = "1-shot"
VARIANTS = ("CML-BGNN w/o C", "CML-BGNN w/o B", "CML-BGNN, public code's choices")
"""rows of the paper's table that are no system of their own; the wide table has them"""
CLASS_ORDER = "query order reveals the label; only to reproduce the paper"


def lean_systems_table(study: Study, cells: Mapping[tuple[str, str], Filled], runs: str) -> str:
    """Four columns; where ours was asked otherwise than the paper's, a dash, a mark and a note."""
    body, notes = [], Notes()
    for row in study.rows:
        cell = cells.get((row.label, COLUMN))
        if cell is None or cell.recipe is None or not cell.cell.paper or row.label in VARIANTS:
            continue
        page = f"{runs.removesuffix('results/runs')}docs/methods/{cell.recipe.method}.md"
        ours, why = ours_like_paper(cell, runs)
        body.append((f"[{row.label.rstrip('†')}]({page})", published(cell), ours + notes.mark(why), trained(cell)))
    return "\n\n".join((markdown_table(HEADER, body, right=(1, 2)), *notes.lines()))


class Notes:
    """Notes below a table, equal ones once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        """The number of a note as a small raised one; "" for none."""
        if not text:
            return ""
        if text not in self.texts:
            self.texts.append(text)
        return f" <sup>{self.texts.index(text) + 1}</sup>"

    def lines(self) -> tuple[str, ...]:
        notes = "<br>".join(f"<sup>{number}</sup> {text}." for number, text in enumerate(self.texts, 1))
        return (notes,) if notes else ()


def published(cell: Filled) -> str:
    interval = f" ± {cell.cell.interval:.2f}" if cell.cell.interval else ""
    return f"{cell.cell.paper:.2f}{interval}"


def ours_like_paper(cell: Filled, runs: str) -> tuple[str, str]:
    """Ours asked as the paper's with a link to its record, or a dash; and what a note has to say."""
    beside = against_paper(cell)
    if beside is None or cell.estimate is None:
        return "\N{EN DASH}", ""
    if beside.apart:
        return "\N{EN DASH}", f"asked otherwise, ours is {_percent(cell.estimate)}: {beside.apart}"
    figure, answer = beside.figure or cell.estimate, beside.answer or cell.first[-1]
    link = record_path(Path(runs), answer.record).as_posix()
    return f"[{_percent(figure)}]({link})", _remark(cell)


def _remark(cell: Filled) -> str:
    """What to know of a published figure beyond how it was asked: other training classes, another encoder."""
    if cell.protocol.get("slot_order") == "class-order":
        return CLASS_ORDER
    paper = cell.recipe.paper if cell.recipe else None
    return paper.note if paper and "batch_norm" not in cell.cell.paper_ask else ""


def _percent(found: Estimate) -> str:
    return f"{100 * found.mean:.2f} ± {100 * found.interval:.2f}"


def trained(cell: Filled) -> str:
    """``20,000 steps, 22 min``; bold over the paper's whole schedule."""
    if not cell.answers:
        return ""
    training = cell.first[0].training
    seconds = training.get("seconds")
    minutes = f", {max(1, round(seconds / 60))} min" if seconds else ""
    steps = f"{cell.iterations:,} steps{minutes}"
    return f"**{steps}**" if cell.scale == "paper" else steps
