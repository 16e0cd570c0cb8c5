"""The systems of a study side by side: published and measured accuracy, cost of training, audit.

The README has a short table of them: each system once, published beside ours under the same protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engram.ledger import Ledger, RunRecord
from engram.protocol import describe_protocol
from engram.recipes import Recipe
from engram.report.audits import verdict_text
from engram.report.cells import BESIDE_NOTE, CellMap, Filled, against_paper
from engram.report.rows import linked
from engram.report.studies import ours_text
from engram.report.table import Column, Table, percent
from engram.studies.schema import Row, Study

SYSTEMS_NOTE = (
    "Paper: the figure in the table of the CML-BGNN paper; published: that of the system's own paper or code. "
    f"{BESIDE_NOTE} "
    "Milliseconds per iteration: of a step alone on the device (`benchmarks/train_step.py`); with ~, of the run itself "
    "without validation, possibly on a shared device. Audit: the newest one of the recipe, else of the recipe named "
    "there."
)
REGIME = {
    "history": None, "transductive": True, "statistics": "running", "query_statistics": "with_support",
    "batch_norm": "running", "vote": "labelled",
}  # fmt: skip
"""settings that decide what an audit finds, with what holds where a recipe is silent"""
VARIANTS = ("CML-BGNN w/o C", "CML-BGNN w/o B", "CML-BGNN, public code's choices")
"""rows of the paper's table that are no system of their own; the wide table has them"""
CLASS_ORDER = "query order reveals the label; only to reproduce the paper"
DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class SystemLine:
    """One system and setting of the table of systems."""

    row: Row
    column: str
    cell: Filled
    ledger: Ledger
    steps: Mapping[tuple[str, str], float]

    @property
    def recipe(self) -> Recipe | None:
        """what answered; None where nothing has"""
        return self.cell.recipe if self.cell.answers else None

    @property
    def costs(self) -> tuple[str, str]:
        if self.recipe is None:
            return "", ""
        trainer = self.cell.first[-1].trainer
        return cost_texts(trainer.training, self.steps.get((trainer.recipe_digest, trainer.device)), trainer.device)

    @property
    def audit(self) -> str:
        """What an audit found, and of which recipe where it is another: ``4 leaks``, ``clean, declared: company``."""
        if self.recipe is None or not (audit := self.cell.audit or alike_audit(self.recipe, self.ledger)):
            return ""
        own = audit.recipe_today == self.recipe.name
        return verdict_text(audit) + ("" if own else f" (`{audit.recipe_name}`)")


def systems_table(
    study: Study, cells: CellMap, ledger: Ledger, runs: str, steps: Mapping[tuple[str, str], float]
) -> str:
    """One line for each system and setting of the study that is recorded or that has a recipe to run.

    ``steps``: milliseconds measured alone, by digest of the recipe and device.
    """
    columns: tuple[Column[SystemLine], ...] = (
        Column("System", lambda s: s.row.label),
        Column("Backbone", lambda s: s.recipe.backbone if s.recipe else s.row.backbone),
        Column("Protocol", lambda s: describe_protocol(s.cell.protocol, True) if s.recipe else f"5-way {s.column}"),
        Column("Paper, %", lambda s: s.cell.cell.paper_text, right=True),
        Column("Published, %", lambda s: s.cell.cell.published_text, right=True),
        Column("Ours, %", lambda s: ours_text(s.cell, runs), right=True),
        Column("Ours, 15 queries, %", lambda s: many_queries_text(s.cell) if s.recipe else "", right=True),
        Column("ms per iteration", lambda s: s.costs[0], right=True),
        Column("Minutes trained", lambda s: s.costs[1], right=True),
        Column("Audit", lambda s: s.audit),
    )
    lines, notes = [], []
    for row in study.rows:
        found = [(column, cells[row.label, column]) for column in study.columns if (row.label, column) in cells]
        lines += [
            SystemLine(row, column, cell, ledger, steps)
            for column, cell in found
            if cell.answers or column == study.columns[0]
        ]
        notes += [f"- {row.label}: {cell.cell.paper_note}." for _, cell in found[:1] if cell.cell.paper_note]
    note = "\n\n".join([SYSTEMS_NOTE, *(["Of the published figures:", "\n".join(notes)] if notes else [])])
    return Table(columns, lines, note=note).markdown()


def many_queries_text(cell: Filled) -> str:
    """With 15 queries per class: ``53.76 ± 0.48``; of several seeds each that was asked, by name; "" where none was."""
    parts = []
    for answer in cell.first:
        evaluations = answer.record.evaluations
        asked = [e.metrics for e in evaluations if e.protocol["n_query"] == 15 and e.protocol != cell.protocol]
        seed = f", seed {answer.seed}" if len(cell.first) > 1 else ""
        parts += [f"{percent(metrics['accuracy'], metrics['interval'])}{seed}" for metrics in asked[:1]]
    return "; ".join(parts)


def cost_texts(training: Mapping[str, float], alone: float | None, device: str) -> tuple[str, str]:
    """Milliseconds per iteration, marked where they are a CPU's, and minutes; empty where a run has no such thing."""
    iterations, seconds = training.get("iterations"), training.get("seconds")
    if not iterations or seconds is None:
        return "", ""
    step = 1000 * (seconds - training.get("validation_seconds", 0.0)) / iterations
    milliseconds = f"~{step:.1f}" if alone is None else f"{alone:.1f}"
    return milliseconds + (" (cpu)" if device.startswith("cpu") else ""), f"{seconds / 60:.1f}"


def alike_audit(recipe: Recipe, ledger: Ledger) -> RunRecord | None:
    """The newest audit of the same method in the same `REGIME`, trained in the same slot order."""

    def kind(settings: Mapping[str, object], order: object) -> tuple[object, ...]:
        return order, *(settings.get(key, default) for key, default in REGIME.items())

    own = kind(recipe.method_settings, recipe.data.slot_order)
    audits = [r for r in ledger.records if (r.kind, r.status, r.method) == ("audit", "finished", recipe.method)]
    alike = [r for r in audits if kind(r.recipe["method_settings"], r.recipe["data"]["slot_order"]) == own]
    return alike[-1] if alike else None


def lean_systems_table(study: Study, cells: CellMap, runs: str) -> str:
    """Four columns; where ours was asked otherwise than the paper's, a dash, a mark and a note, equal ones once."""
    found = [cells[row.label, "1-shot"] for row in study.rows if (row.label, "1-shot") in cells]
    rows = [c for c in found if c.recipe and c.cell.paper and c.row not in VARIANTS]
    ours = {cell.row: ours_like_paper(cell, runs) for cell in rows}
    notes = list(dict.fromkeys(note for _, note in ours.values() if note))

    def system(cell: Filled) -> str:
        page = f"{runs.removesuffix('results/runs')}docs/methods/{cell.recipe.method if cell.recipe else ''}.md"
        return f"[{cell.row.rstrip('†')}]({page})"

    def marked(cell: Filled) -> str:
        figure, note = ours[cell.row]
        return figure + (f" <sup>{notes.index(note) + 1}</sup>" if note else "")

    columns: tuple[Column[Filled], ...] = (
        Column("System", system),
        Column("Published", lambda cell: cell.cell.paper_text, right=True),
        Column("Ours", marked, right=True),
        Column("Trained", trained),
    )
    return Table(
        columns, rows, note="<br>".join(f"<sup>{n}</sup> {text}." for n, text in enumerate(notes, 1))
    ).markdown()


def ours_like_paper(cell: Filled, runs: str) -> tuple[str, str]:
    """Ours asked as the paper's with a link to its record, or a dash; and what a note has to say."""
    if not (beside := against_paper(cell)):
        return DASH, ""
    figure = percent(beside.figure.mean, beside.figure.interval)
    if beside.apart:
        return DASH, f"under another protocol, ours is {figure}: {beside.apart}"
    return linked(figure, beside.answer.record, runs), _remark(cell)


def _remark(cell: Filled) -> str:
    """What to know of a published figure beyond how it was asked: other training classes, another encoder."""
    if cell.protocol.get("slot_order") == "class-order":
        return CLASS_ORDER
    return cell.cell.paper_note if "batch_norm" not in cell.cell.paper_ask else ""


def trained(cell: Filled) -> str:
    """``20,000 steps, 22 min``; bold over the paper's whole schedule."""
    if not cell.answers:
        return ""
    seconds = cell.first[0].training.get("seconds")
    steps = f"{cell.iterations:,} steps" + (f", {max(1, round(seconds / 60))} min" if seconds else "")
    return f"**{steps}**" if cell.scale == "paper" else steps
