"""From run records to the rows of a table: which runs count, and how each number is written.

What one run scored, two runs compared and answers to pictures are tables for a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.errors import EngramError
from engram.evaluation.metrics import paired_difference
from engram.ledger import Evaluation, Ledger, RunRecord, correctness, newest, record_path
from engram.protocol import agrees, describe_protocol
from engram.recipes.protocols import protocols_of
from engram.report.table import Column, Table, percent, points, shown_positions
from engram.studies.claims import published_figures

SELECTION_MARK = "weights chosen on the test split, only to reproduce a leak"
LOST = "per-task results cannot be read"
DATASET_NAMES = {"miniimagenet": "miniImageNet", "tieredimagenet": "tieredImageNet", "omniglot": "Omniglot"}


@dataclass(frozen=True)
class ResultRow:
    """One record and one protocol; ``evaluation`` is None where the run gave no answer."""

    record: RunRecord
    evaluation: Evaluation | None
    protocol: dict[str, Any]
    trained: Mapping[str, Any]
    """what training cost: of this run, or of the run whose checkpoint it answered with"""

    @property
    def seed(self) -> int:
        return (self.record.recipe.get("train") or {}).get("seed", self.record.seed)

    @property
    def length(self) -> int:
        """of the stream"""
        return self.protocol.get("stream_length", 1)


def file_of(record: RunRecord, runs: str) -> str:
    """The way to a record from a page whose way to the records is ``runs``."""
    return record_path(Path(runs), record).as_posix()


def linked(words: str, record: RunRecord, runs: str) -> str:
    """The words with a link to a record."""
    return f"[{words}]({file_of(record, runs)})"


def paired(first: Evaluation, second: Evaluation, folder: Path, last_quarter: bool = False) -> Mapping[str, Any] | None:
    """First minus second, task by task; None where the per-task results of one of them cannot be read."""
    try:
        tasks = [correctness(evaluation, folder) for evaluation in (first, second)]
    except EngramError:
        return None
    return paired_difference(*tasks, last_quarter=last_quarter)


def gap_text(found: Mapping[str, Any] | None) -> str:
    """``+1.20 ± 0.42`` points"""
    return points(found["difference"], found["interval"]) if found else LOST


def result_rows(records: Sequence[RunRecord]) -> list[ResultRow]:
    """Finished train and bench runs, the latest of equal ones; failed runs keep a row of their own.

    Equal means: the same recipe digest, origin, protocol and tasks. A failed run neither replaces a result nor is
    replaced. An interrupted run stands until a later run of the same recipe has finished.
    """
    ledger = Ledger(records)
    found = newest(ledger.given, lambda answer: answer.question).values()
    rows = [_row(ledger, answer.record, answer.evaluation) for answer in found]
    return sorted([*rows, *(_row(ledger, record, None) for record in ledger.unanswered)], key=_order)


def _row(ledger: Ledger, record: RunRecord, evaluation: Evaluation | None) -> ResultRow:
    # a bench over features tells of its features, and of no training
    trained = record.training if record.kind == "train" else ledger.trainers.of(record).training or record.training
    asked = evaluation or next(iter(record.evaluations), None)
    protocol = asked.protocol if asked else protocols_of(record.recipe)[0].to_dict()
    return ResultRow(record, evaluation, protocol, trained)


def _order(row: ResultRow) -> tuple[Any, ...]:
    p, r = {"dataset": "", "n_way": 0, "n_shot": 0, "labelled_fraction": 1.0, **row.protocol}, row.record
    task = str(p["dataset"]), p["n_way"], p["n_shot"], p["labelled_fraction"], r.method, r.recipe_name
    asked = p.get("slot_order") == "class-order", row.length, p.get("n_query", 0)
    return *task, *asked, row.evaluation is None, r.started, r.run_id


def dataset_name(protocol: Mapping[str, Any]) -> str:
    dataset = str(protocol.get("dataset", ""))
    split = protocol.get("split", "test")
    return DATASET_NAMES.get(dataset, dataset) + ("" if split == "test" else f" ({split})")


def published_figure(row: ResultRow) -> str:
    """``59.18; 58.65 ± 0.55 (Table 1)``: in the system's own paper or code; in the paper's table where it differs.

    Only beside the recipe's own method and the setting it was published for.
    """
    name, planned = row.record.recipe_today, protocols_of(row.record.recipe)[0].question
    decisive = ("dataset", "split", "n_way", "n_shot", "labelled_fraction", "drop_unlabelled")
    fits = name.startswith(f"{row.record.method}/") and agrees(row.protocol, {k: planned[k] for k in decisive})
    if not fits or not (paper := published_figures().get(name)):
        return ""
    own, table = paper.cell.published_text, f"{paper.cell.paper_text} ({paper.table})"
    return own if own == paper.cell.paper_text else "; ".join(filter(None, (own, table)))


def our_figure(row: ResultRow) -> str:
    """Accuracy with its interval, or what became of the run."""
    if row.evaluation is not None:
        return percent(row.evaluation.metrics.get("accuracy"), row.evaluation.metrics.get("interval"))
    reason = " ".join(row.record.error.split())
    reason = reason if len(reason) <= 90 else reason[:87] + "..."
    return f"**{row.record.status}**" + (f": {reason}" if reason else "")


def trained_part(training: Mapping[str, Any]) -> str:
    """``the first 380 images of each class`` where a head saw features of a part of the images alone, or how
    it saw them; "" otherwise."""
    return str(training.get("features") or "").partition("; ")[2]


def training_cost(row: ResultRow) -> str:
    """``12.3 (70,000 steps)``"""
    iterations, seconds = row.trained.get("iterations"), row.trained.get("seconds")
    if iterations == 0:
        return "not trained"
    if seconds is None:
        return ""
    return f"{seconds / 60:.1f}" + (f" ({iterations:,} steps)" if iterations else "")


def record_table(record: RunRecord) -> Table[Evaluation]:
    """What one run scored, protocol by protocol."""

    def protocol(evaluation: Evaluation) -> str:
        by_position = evaluation.metrics["accuracy_by_position"]
        shown = (f"{p}: {percent(by_position[p - 1], digits=1)}" for p in shown_positions(len(by_position)))
        along = f"\n  by position {', '.join(shown)}" if len(by_position) > 1 else ""
        return describe_protocol(evaluation.protocol) + along

    def metric(name: str) -> Column[Evaluation]:
        return Column(name, lambda e: f"{e.metrics[name.lower()]:.3f}", right=True)

    accuracy = Column[Evaluation](
        "accuracy, %", lambda e: percent(e.metrics["accuracy"], e.metrics["interval"]), right=True
    )
    columns = (Column("protocol", protocol), accuracy, *map(metric, ("NLL", "ECE", "Brier")))
    return Table(columns, record.evaluations, title=f"{record.recipe_name}, {record.ending}")


def comparison_table(first: str, second: str, rows: Sequence[Mapping[str, Any]]) -> Table[Mapping[str, Any]]:
    """Paired differences, each with its interval and a word where it is inside the noise."""
    columns: tuple[Column[Mapping[str, Any]], ...] = (
        Column("protocol", lambda row: describe_protocol(row["protocol"])),
        Column("part", lambda row: row["part"]),
        Column("points", lambda row: points(row["difference"], row["interval"]), right=True),
        Column("sequences", lambda row: str(row["n"]), right=True),
        Column("reading", lambda r: "clear" if abs(r["difference"]) > r["interval"] else "inside the noise"),
    )
    return Table(columns, rows, title=f"{first}\nminus {second}")


def answers_table(rows: Sequence[Mapping[str, Any]]) -> Table[Mapping[str, Any]]:
    """Pictures and their classes."""

    def share(name: str) -> Column[Mapping[str, Any]]:
        return Column(name.replace("_", " "), lambda row: f"{percent(row[name], digits=1)} %", right=True)

    shares = [name for name in ("probability", "familiar", "not_known", "left_open") if name in rows[0]]
    picture = Column[Mapping[str, Any]]("picture", lambda row: row["file"])
    return Table((picture, Column("class", lambda row: row["class"]), *map(share, shares)), rows)
