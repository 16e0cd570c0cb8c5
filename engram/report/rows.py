"""From run records to the rows of a table: which runs count, and how each number is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engram.ledger import Evaluation, Ledger, RunRecord, newest
from engram.protocol import agrees
from engram.recipes.protocols import protocols_of

SELECTION_MARK = "weights chosen on the test split, only to reproduce a leak"
DATASET_NAMES = {"miniimagenet": "miniImageNet", "tieredimagenet": "tieredImageNet", "omniglot": "Omniglot"}


@dataclass(frozen=True)
class ResultRow:
    """One record and one protocol; ``evaluation`` is None where the run gave no answer."""

    record: RunRecord
    evaluation: Evaluation | None
    protocol: dict[str, Any]
    trained: Mapping[str, Any]
    """what training cost: of this run, or of the run whose checkpoint it answered with"""
    shared_name: bool = False
    """another row has the same recipe and protocol but other settings, such as another seed"""


@dataclass(frozen=True, eq=False)
class _These:
    """Equal where all records are the very same objects: reading them all again would take as long as the rows."""

    records: tuple[RunRecord, ...]

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.records)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _These) and list(map(id, self.records)) == list(map(id, other.records))


def result_rows(records: Sequence[RunRecord]) -> list[ResultRow]:
    """Finished train and bench runs, the latest of equal ones; failed runs keep a row of their own.

    Equal means: the same recipe digest, origin, protocol and tasks. A failed run neither replaces a result nor is
    replaced. An interrupted run stands until a later run of the same recipe has finished. Every section of a report
    asks for them, so they are made once.
    """
    return list(_rows(_These(tuple(records))))


@lru_cache(maxsize=2)
def _rows(these: _These) -> list[ResultRow]:
    ledger = Ledger(these.records)
    found = newest(ledger.given, lambda answer: answer.question).values()
    rows = [_row(ledger, answer.record, answer.evaluation) for answer in found]
    rows += [_row(ledger, record, None) for record in ledger.unanswered]
    return _mark_shared_names(sorted(rows, key=_order))


def _row(ledger: Ledger, record: RunRecord, evaluation: Evaluation | None) -> ResultRow:
    # a bench over features tells of its features, and of no training
    trained = record.training if record.kind == "train" else ledger.trainers.of(record).training or record.training
    asked = evaluation or next(iter(record.evaluations), None)
    protocol = asked.protocol if asked else protocols_of(record.recipe)[0].to_dict()
    return ResultRow(record, evaluation, protocol, trained)


def _canonical(protocol: Mapping[str, Any]) -> str:
    return json.dumps(protocol, sort_keys=True)


def _order(row: ResultRow) -> tuple[Any, ...]:
    p = row.protocol
    return (
        str(p.get("dataset", "")),
        p.get("n_way", 0),
        p.get("n_shot", 0),
        p.get("labelled_fraction", 1.0),
        row.record.method,
        row.record.recipe_name,
        p.get("slot_order") == "class-order",
        p.get("stream_length", 1),
        p.get("n_query", 0),
        row.evaluation is None,
        row.record.started,
        row.record.run_id,
    )


def _mark_shared_names(rows: list[ResultRow]) -> list[ResultRow]:
    names = [(r.record.recipe_name, r.record.method, _canonical(r.protocol)) for r in rows]
    counts = Counter(names)
    return [
        ResultRow(r.record, r.evaluation, r.protocol, r.trained, shared_name=counts[name] > 1)
        for r, name in zip(rows, names, strict=True)
    ]


def dataset_name(protocol: Mapping[str, Any]) -> str:
    dataset = str(protocol.get("dataset", ""))
    split = protocol.get("split", "test")
    return DATASET_NAMES.get(dataset, dataset) + ("" if split == "test" else f" ({split})")


def quoted(row: ResultRow) -> Mapping[str, Any]:
    """What the recipe quotes of papers, only beside the setting it was published for; else nothing."""
    paper, planned = row.record.recipe.get("paper"), protocols_of(row.record.recipe)[0].question
    decisive = ("dataset", "split", "n_way", "n_shot", "labelled_fraction", "drop_unlabelled")
    return paper if paper and agrees(row.protocol, {k: planned[k] for k in decisive}) else {}


def paper_figure(row: ResultRow) -> str:
    """The figure in the paper's table."""
    paper = quoted(row)
    interval = f" ± {paper['interval']:.2f}" if paper.get("interval") else ""
    return f"{paper['accuracy']:.2f}{interval} ({paper['table']})" if paper else ""


def published_figure(row: ResultRow) -> str:
    """The figure in the system's own paper or code; "" where the recipe quotes none."""
    paper = quoted(row)
    interval = f" ± {paper['published_interval']:.2f}" if paper.get("published_interval") else ""
    return f"{paper['published']:.2f}{interval}" if paper.get("published") else ""


def percent(accuracy: float | None, interval: float | None, digits: int = 2) -> str:
    """``51.83 ± 0.42`` from fractions of 1."""
    if accuracy is None:
        return "not a number"
    half_width = "" if interval is None else f" ± {100 * interval:.{digits}f}"
    return f"{100 * accuracy:.{digits}f}{half_width}"


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
