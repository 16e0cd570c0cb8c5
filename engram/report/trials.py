"""Runs beside each other: choices of stage one, which features heads are trained on, and the fast path of training
beside the plain one.

``<!-- trials:begin stage_one -->`` lists every miniImageNet recipe with ``[train] average`` that has a run, the newest;
``<!-- trials:begin heads -->`` every run on features of the encoder that saw half of the training classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engram.ledger import Answer, Ledger, RunRecord, newest
from engram.protocol import describe_protocol
from engram.recipes import recipe_names
from engram.report.results import NO_RUNS
from engram.report.rows import gap_text, linked, paired
from engram.report.table import Column, Table, percent

NOTE = (
    "Nearest centroid on validation classes, 5-way 1-shot, 15 queries per class, one view of each picture. Best: the "
    "highest validation accuracy, which chose the weights, and at which share of the schedule. End: the last "
    "validation, when the rate is almost 0. Weights: the digest of what was kept, or of its "
    "features, as the run or a bench of it states it: by it a run made anew is told from this one."
)
SECTION, HEADS = "stage_one", "heads"
HALF_MAKER = "stage_one/mini_conv4_half"
"""whose features heads are compared on"""
HEADS_NOTE = (
    "Each head over the same frozen encoder, trained on 32 classes: those the encoder was trained on, as the pictures "
    "are or in several views under augmentation, or 32 others. Accuracy at the end of training, and the best on "
    "validation classes, 5-way 1-shot, ± its 95 % interval over tasks, the same for all rows of a head."
)


def heads_section(records: Sequence[RunRecord], runs: str) -> str:
    """The newest run of each head on each kind of features."""
    known = {name for name in recipe_names() if "_half_" in name}

    def kind(record: RunRecord) -> tuple[str, str] | None:
        made_by = str(record.training.get("features", ""))
        fits = record.kind == "train" and record.recipe_name in known and f" {HALF_MAKER}, " in made_by
        return (record.recipe_name, made_by.partition("; ")[2]) if fits else None

    found = newest(Ledger(records).finished, kind)
    columns: tuple[Column[tuple[str, str]], ...] = (
        Column("Head", lambda key: linked(f"`{key[0]}`", found[key], runs)),
        Column("Trained on", lambda key: "classes it did not see" if "unseen" in key[0] else "classes it saw"),
        Column("Pictures", lambda key: key[1] or "as they are"),
        Column("Training accuracy, %", lambda key: _last(found[key], "train_accuracy"), right=True),
        Column("Validation classes, %", lambda key: _best_figure(found[key]), right=True),
    )
    return Table(columns, sorted(found), note=HEADS_NOTE, empty=NO_RUNS).markdown()


def _best_figure(record: RunRecord) -> str:
    best = record.curves["validation_accuracy"].index(_best(record))
    return percent(_best(record), record.curves["validation_interval"][best])


def trials_section(records: Sequence[RunRecord], runs: str) -> str:
    known = {name for name in recipe_names() if name.startswith(f"{SECTION}/mini_")}

    def recipe(record: RunRecord) -> str | None:
        averaged = record.kind == "train" and "validation_accuracy_average" in record.curves
        return record.recipe_name if averaged and record.recipe_name in known else None

    found = newest(Ledger(records).finished, recipe)
    rows = sorted((found[name] for name in sorted(found)), key=lambda r: (r.recipe["backbone"], _best(r)))
    features = {r.trained_by: f"`{r.start['features']}` (features)" for r in records if r.start.get("features")}
    weights = {r.trained_by or r.run_id: f"`{r.training['weights']}`" for r in records if r.training.get("weights")}
    kept = features | weights
    columns: tuple[Column[RunRecord], ...] = (
        Column("Recipe", lambda r: linked(f"`{r.recipe_name}`", r, runs)),
        Column("Steps", lambda r: f"{r.training['iterations']:,}", right=True),
        Column("Minutes", lambda r: f"{r.training['seconds'] / 60:.1f}", right=True),
        Column("Training accuracy, end, %", lambda r: _last(r, "train_accuracy"), right=True),
        Column("Last weights, end, %", lambda r: _last(r, "validation_accuracy_last"), right=True),
        Column("Average, end, %", lambda r: _last(r, "validation_accuracy_average"), right=True),
        Column("Best, %", lambda r: f"{100 * _best(r):.1f}", right=True),
        Column("Met at", _when, right=True),
        Column("Weights", lambda r: kept.get(r.run_id, "")),
    )
    return Table(columns, rows, note=NOTE, empty=NO_RUNS).markdown()


def _best(record: RunRecord) -> float:
    return max(record.curves["validation_accuracy"])


def _when(record: RunRecord) -> str:
    """Where the best was met, as a share of the steps made."""
    best = record.curves["validation_accuracy"].index(_best(record))
    return f"{100 * record.curves['iteration'][best] / record.curves['iteration'][-1]:.0f} %"


def _last(record: RunRecord, curve: str) -> str:
    return f"{100 * record.curves[curve][-1]:.1f}" if curve in record.curves else ""


def paths_table(records: Sequence[RunRecord], runs: str, folder: Path) -> Table[tuple[Answer, Answer]]:
    """A row for each question to two runs of one recipe, seed and commit: one replayed captured steps, the other, with
    ``--plain``, did not. The newest of each kind."""
    kinds: dict[object, dict[bool, Answer]] = {}
    for answer in Ledger(records).given:
        record = answer.record
        if record.kind == "train" and (captured := record.training.get("captured")) is not None:
            kinds.setdefault((answer.question, record.seed, record.commit), {})[bool(captured)] = answer
    rows = [(found[True], found[False]) for found in kinds.values() if len(found) == 2]

    def figure(answer: Answer) -> str:
        metrics = answer.evaluation.metrics
        return linked(percent(metrics["accuracy"], metrics["interval"]), answer.record, runs)

    def gap(row: tuple[Answer, Answer]) -> str:
        return gap_text(paired(row[0].evaluation, row[1].evaluation, folder))

    columns: tuple[Column[tuple[Answer, Answer]], ...] = (
        Column("Recipe", lambda row: f"`{row[0].record.recipe_name}`"),
        Column("Steps", lambda row: f"{row[0].record.training['iterations']:,}", right=True),
        Column("Protocol", lambda row: describe_protocol(row[0].evaluation.protocol)),
        Column("Fast, %", lambda row: figure(row[0]), right=True),
        Column("Plain, %", lambda row: figure(row[1]), right=True),
        Column("Fast minus plain, points", gap, right=True),
    )
    return Table(columns, rows)
