"""What each system's run cost, and what its audit found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

from engram.ledger import Ledger, RunRecord
from engram.protocol import describe_protocol
from engram.recipes import Recipe
from engram.report.audits import verdict_text
from engram.report.cells import CellMap, Filled
from engram.report.table import Column, Table
from engram.studies.schema import Study

COST_NOTE = (
    "Milliseconds per iteration: of a step alone on the device (`benchmarks/train_step.py`); with ~, of the run itself "
    "without validation, possibly on a shared device. Audit: the newest one of the recipe, else of the recipe named "
    "there."
)
REGIME = {
    "history": None, "transductive": True, "statistics": "running", "query_statistics": "with_support",
    "batch_norm": "running", "vote": "labelled",
}  # fmt: skip
"""settings that decide what an audit finds, with what holds where a recipe is silent"""


@dataclass(frozen=True)
class CostLine:
    """What one recorded cell cost, and its audit."""

    cell: Filled
    ledger: Ledger
    steps: Mapping[tuple[str, str], float]

    @property
    def costs(self) -> tuple[str, str]:
        trainer = self.cell.first[-1].trainer
        return cost_texts(trainer.training, self.steps.get((trainer.recipe_digest, trainer.device)), trainer.device)

    @property
    def audit(self) -> str:
        """What an audit found, and of which recipe where it is another: ``4 leaks``, ``clean, declared: company``."""
        recipe = self.cell.recipe
        if recipe is None or not (audit := self.cell.audit or alike_audit(recipe, self.ledger)):
            return ""
        own = audit.recipe_today == recipe.name
        return verdict_text(audit) + ("" if own else f" (`{audit.recipe_name}`)")


COST_COLUMNS: tuple[Column[CostLine], ...] = (
    Column("System", lambda line: line.cell.row),
    Column("Protocol", lambda line: describe_protocol(line.cell.protocol, True)),
    Column("ms per iteration", lambda line: line.costs[0], right=True),
    Column("Minutes trained", lambda line: line.costs[1], right=True),
    Column("Audit", attrgetter("audit")),
)


def costs_table(study: Study, cells: CellMap, ledger: Ledger, steps: Mapping[tuple[str, str], float]) -> str:
    """A line for each recorded cell. ``steps``: milliseconds measured alone, by digest of the recipe and device."""
    recorded = [cells[row.label, cell.column] for row, cell in study.cells() if cells[row.label, cell.column].answers]
    return Table(COST_COLUMNS, [CostLine(cell, ledger, steps) for cell in recorded], note=COST_NOTE).markdown()


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
