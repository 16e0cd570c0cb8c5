"""What each choice of stage one is worth: runs with a moving average, by their accuracy on validation classes.

``<!-- trials:begin stage_one -->`` lists every miniImageNet recipe with ``[train] average`` that has a run, the newest.
"""

from __future__ import annotations

from collections.abc import Sequence

from engram.ledger import RunRecord
from engram.recipes import recipe_names
from engram.report.results import NOT_MEASURED
from engram.report.rows import linked
from engram.report.table import Column, Table

NOTE = (
    "Nearest centroid on validation classes, 5-way 1-shot, 15 queries per class, one view of each picture. Best: the "
    "highest validation accuracy, which chose the weights, and at which share of the schedule. End: the last "
    "validation, when the rate is almost 0."
)


SECTION = "stage_one"


def trials_section(records: Sequence[RunRecord], runs: str) -> str:
    known = [name for name in recipe_names() if name.startswith(f"{SECTION}/mini_")]
    newest = {r.recipe_name: r for r in sorted(records, key=lambda r: r.started) if _is_trial(r)}
    rows = sorted((newest[name] for name in known if name in newest), key=lambda r: (r.recipe["backbone"], _best(r)))
    return Table(_columns(runs), rows, note=NOTE, empty=NOT_MEASURED).markdown()


def _is_trial(record: RunRecord) -> bool:
    return record.kind == "train" and record.status == "finished" and "validation_accuracy_average" in record.curves


def _best(record: RunRecord) -> float:
    return max(record.curves["validation_accuracy"])


def _when(record: RunRecord) -> str:
    """Where the best was met, as a share of the steps made."""
    best = record.curves["validation_accuracy"].index(_best(record))
    return f"{100 * record.curves['iteration'][best] / record.curves['iteration'][-1]:.0f} %"


def _last(record: RunRecord, curve: str) -> str:
    return f"{100 * record.curves[curve][-1]:.1f}" if curve in record.curves else ""


def _columns(runs: str) -> tuple[Column[RunRecord], ...]:
    return (
        Column("Recipe", lambda r: linked(f"`{r.recipe_name}`", r, runs)),
        Column("Steps", lambda r: f"{r.training['iterations']:,}", right=True),
        Column("Minutes", lambda r: f"{r.training['seconds'] / 60:.1f}", right=True),
        Column("Training accuracy, end, %", lambda r: _last(r, "train_accuracy"), right=True),
        Column("Last weights, end, %", lambda r: _last(r, "validation_accuracy_last"), right=True),
        Column("Average, end, %", lambda r: _last(r, "validation_accuracy_average"), right=True),
        Column("Best, %", lambda r: f"{100 * _best(r):.1f}", right=True),
        Column("Met at", _when, right=True),
    )
