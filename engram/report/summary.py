"""results/summary.csv: every answered question in one line, for a person with a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from engram.ledger import RunRecord, record_path
from engram.protocol import describe_protocol
from engram.report.rows import ResultRow, dataset_name, result_rows

SUMMARY = Path("results/summary.csv")
COLUMNS = (
    "recipe", "method", "dataset", "protocol", "accuracy_percent", "interval_percent", "iterations", "seed", "settings",
    "revision", "started", "record",
)  # fmt: skip


def summary_csv(records: Sequence[RunRecord]) -> str:
    """A header and a line for each newest answer: accuracy in %, half-width of its 95 % interval, its record's file.

    Equal ``settings`` are equal recipes and seeds: a recipe may have been run before one of its keys was changed.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_cells(row) for row in result_rows(records) if row.evaluation is not None)
    return text.getvalue()


def _cells(row: ResultRow) -> tuple[str | int, ...]:
    assert row.evaluation is not None
    accuracy, interval = (row.evaluation.metrics.get(key) for key in ("accuracy", "interval"))
    return (
        row.record.recipe_name,
        row.record.method,
        dataset_name(row.protocol),
        describe_protocol(row.protocol),
        "" if accuracy is None else f"{100 * accuracy:.2f}",
        "" if interval is None else f"{100 * interval:.2f}",
        int(row.trained.get("iterations") or 0),
        int((row.record.recipe.get("train") or {}).get("seed", row.record.seed)),
        row.record.recipe_digest[:6],
        row.record.revision,
        row.record.started,
        record_path(Path("runs"), row.record).as_posix(),
    )
