"""The systems of a study side by side: published and measured accuracy, cost of training, audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engram.ledger import Ledger, RunRecord
from engram.protocol import describe_protocol
from engram.recipes import Recipe
from engram.report.beside_paper import BESIDE_NOTE
from engram.report.columns import Column, markdown
from engram.report.rows import percent as rows_percent
from engram.report.study.cells import Filled
from engram.report.study.tables import CellMap, ours_text, paper_text
from engram.report.verdicts import verdict_text
from engram.studies.schema import Row, Study

SYSTEMS_NOTE = (
    "Paper: the figure in the table of the CML-BGNN paper; published: that of the system's own paper or code. "
    f"{BESIDE_NOTE} "
    "Milliseconds per iteration: of a step that has the device to itself (`benchmarks/train_step.py`); with ~ of the "
    "run, without validation and with whatever shared the device. Audit: the newest of the recipe, else of the "
    "method's recipe that is named."
)
REGIME = {
    "history": None, "transductive": True, "statistics": "running", "query_statistics": "with_support",
    "batch_norm": "running", "vote": "labelled",
}  # fmt: skip
"""settings that decide what an audit finds, with what holds where a recipe is silent"""


def audit_text(audit: RunRecord | None, recipe: str = "") -> str:
    """What an audit found, and of which recipe where it is another: ``4 leaks``, ``clean, declared: company``."""
    if audit is None:
        return ""
    words = verdict_text(audit)
    return words if not recipe or audit.recipe_today == recipe else f"{words} (`{audit.recipe_name}`)"


@dataclass(frozen=True)
class SystemLine:
    """One system and setting of the table of systems."""

    row: Row
    column: str
    cell: Filled
    ledger: Ledger
    runs: str
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
    def protocol(self) -> str:
        return describe_protocol(self.cell.protocol, markdown=True) if self.recipe else f"5-way {self.column}"

    @property
    def published(self) -> str:
        paper = self.cell.recipe.paper if self.cell.recipe else None
        if not paper or not paper.published:
            return ""
        return f"{paper.published:.2f}" + (f" ± {paper.published_interval:.2f}" if paper.published_interval else "")

    @property
    def audit(self) -> str:
        if self.recipe is None:
            return ""
        return audit_text(self.cell.audit or alike_audit(self.cell, self.ledger), self.recipe.name)


SYSTEM_COLUMNS: tuple[Column[SystemLine], ...] = (
    Column("System", lambda s: s.row.label),
    Column("Backbone", lambda s: s.recipe.backbone if s.recipe else s.row.backbone),
    Column("Protocol", lambda s: s.protocol),
    Column("Paper, %", lambda s: paper_text(s.cell), right=True),
    Column("Published, %", lambda s: s.published, right=True),
    Column("Ours, %", lambda s: ours_text(s.cell, s.runs), right=True),
    Column("Ours, 15 queries, %", lambda s: many_queries_text(s.cell) if s.recipe else "", right=True),
    Column("ms per iteration", lambda s: s.costs[0], right=True),
    Column("Minutes trained", lambda s: s.costs[1], right=True),
    Column("Audit", lambda s: s.audit),
)


def systems_table(
    study: Study, cells: CellMap, ledger: Ledger, runs: str, steps: Mapping[tuple[str, str], float]
) -> str:
    """One line for each system and setting of the study that is recorded or that has a recipe to run.

    ``steps``: milliseconds measured alone, by digest of the recipe and device.
    """
    lines = [
        SystemLine(row, column, cell, ledger, runs, steps)
        for row in study.rows
        for column in study.columns
        if (cell := cells.get((row.label, column))) and (cell.answers or column == study.columns[0])
    ]
    return f"{markdown(SYSTEM_COLUMNS, lines)}\n\n{SYSTEMS_NOTE}{paper_notes(study, cells)}"


def paper_notes(study: Study, cells: CellMap) -> str:
    """What recipes say of their published figures, a line each; "" where none says anything."""
    lines = []
    for row in study.rows:
        recipes = [c.recipe for column in study.columns if (c := cells.get((row.label, column))) and c.recipe]
        if recipes and recipes[0].paper and recipes[0].paper.note:
            lines.append(f"- {row.label}: {recipes[0].paper.note}.")
    return "\n\nOf the published figures:\n\n" + "\n".join(lines) if lines else ""


def many_queries_text(cell: Filled) -> str:
    """With 15 queries per class: ``53.76 ± 0.48``; of several seeds each that was asked, by name; "" where none was."""
    parts = []
    for answer in cell.first:
        evaluations = answer.record.evaluations
        asked = [e.metrics for e in evaluations if e.protocol["n_query"] == 15 and e.protocol != cell.protocol]
        for metrics in asked[:1]:
            seed = f", seed {answer.seed}" if len(cell.first) > 1 else ""
            parts.append(f"{rows_percent(metrics['accuracy'], metrics['interval'])}{seed}")
    return "; ".join(parts)


def cost_texts(training: Mapping[str, float], alone: float | None, device: str) -> tuple[str, str]:
    """Milliseconds per iteration, marked where they are a CPU's, and minutes; empty where a run has no such thing."""
    iterations, seconds = training.get("iterations"), training.get("seconds")
    if not iterations or seconds is None:
        return "", ""
    step = 1000 * (seconds - training.get("validation_seconds", 0.0)) / iterations
    milliseconds = f"~{step:.1f}" if alone is None else f"{alone:.1f}"
    return milliseconds + (" (cpu)" if device.startswith("cpu") else ""), f"{seconds / 60:.1f}"


def alike_audit(cell: Filled, ledger: Ledger) -> RunRecord | None:
    """The newest audit of the same method in the same `REGIME`, trained in the same slot order."""
    assert cell.recipe is not None

    def kind(settings: Mapping[str, object], order: object) -> tuple[object, ...]:
        return order, *(settings.get(key, default) for key, default in REGIME.items())

    own = kind(cell.recipe.method_settings, cell.recipe.data.slot_order)
    audits = [r for r in ledger.records if (r.kind, r.status, r.method) == ("audit", "finished", cell.recipe.method)]
    alike = [r for r in audits if kind(r.recipe["method_settings"], r.recipe["data"]["slot_order"]) == own]
    return alike[-1] if alike else None
