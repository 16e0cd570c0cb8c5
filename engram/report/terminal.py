"""Tables of runs, comparisons and answers for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engram.ledger import Evaluation, RunRecord
from engram.protocol import describe_protocol
from engram.report.table import Column, Table, percent, points, shown_positions


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
    return Table(columns, record.evaluations, title=f"{record.recipe_name}, {record.status}")


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
