"""The same tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from engram.ledger import Evaluation, RunRecord
from engram.protocol import describe_protocol
from engram.report.columns import Column, position_columns, shown_positions, terminal
from engram.report.contents import QUICKSTART_COLUMNS, PositionCurve, QuickstartRow
from engram.report.rows import percent


def quickstart_table(rows: Sequence[QuickstartRow]) -> Table:
    """Systems grouped by setting, accuracy with its 95 % interval, a note below the system's name."""
    settings = [row.setting for row in rows]
    system, *figures = QUICKSTART_COLUMNS
    columns = (
        Column("Setting", lambda row: row.setting if row is rows[settings.index(row.setting)] else ""),
        Column(system.name, lambda row: "\n".join(filter(None, (row.system, row.note)))),
        *figures,
    )
    ordered = sorted(rows, key=lambda row: settings.index(row.setting))
    return terminal("± 95 % interval over independent sequences", columns, ordered)


def positions_table(curves: Sequence[PositionCurve], title: str = "Accuracy, %, by position in the stream") -> Table:
    """Accuracy at positions of the stream; a shorter stream leaves cells empty."""
    positions = sorted({p for c in curves for p in shown_positions(len(c.accuracy))})
    columns = (
        Column[PositionCurve]("System", lambda curve: curve.label),
        *position_columns(positions, lambda curve: (curve.accuracy, curve.interval), "", "±"),
    )
    return terminal(f"{title} (± the widest interval)", columns, curves)


def record_table(record: RunRecord) -> Table:
    """What one run scored, protocol by protocol."""

    def protocol(evaluation: Evaluation) -> str:
        by_position = evaluation.metrics["accuracy_by_position"]
        shown = (f"{p}: {100 * by_position[p - 1]:.1f}" for p in shown_positions(len(by_position)))
        along = f"\n  by position {', '.join(shown)}" if len(by_position) > 1 else ""
        return describe_protocol(evaluation.protocol) + along

    columns: tuple[Column[Evaluation], ...] = (
        Column("protocol", protocol),
        Column("accuracy, %", lambda e: percent(e.metrics["accuracy"], e.metrics["interval"]), right=True),
        Column("NLL", lambda e: f"{e.metrics['nll']:.3f}", right=True),
        Column("ECE", lambda e: f"{e.metrics['ece']:.3f}", right=True),
        Column("Brier", lambda e: f"{e.metrics['brier']:.3f}", right=True),
    )
    return terminal(f"{record.recipe_name}, {record.status}", columns, record.evaluations)


def comparison_table(first: str, second: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Paired differences, each with its interval and a word where it is inside the noise."""

    def reading(row: Mapping[str, Any]) -> str:
        return "clear" if abs(row["difference"]) > row["interval"] else "inside the noise"

    columns: tuple[Column[Mapping[str, Any]], ...] = (
        Column("protocol", lambda row: describe_protocol(row["protocol"])),
        Column("part", lambda row: row["part"]),
        Column("points", lambda row: f"{100 * row['difference']:+.2f} ± {100 * row['interval']:.2f}", right=True),
        Column("sequences", lambda row: str(row["n"]), right=True),
        Column("reading", reading),
    )
    return terminal(f"{first}\nminus {second}", columns, rows)


def answers_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Pictures and their classes as plain aligned lines, so that ten thousand of them print at once."""
    shares = [name for name in ("probability", "familiar", "not_known", "left_open") if name in rows[0]]
    lines = [("picture", "class", *(name.replace("_", " ") for name in shares))]
    lines += [(row["file"], row["class"], *(f"{100 * row[name]:.1f} %" for name in shares)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join(
            [
                *(cell.ljust(width) for cell, width in zip(line[:2], widths, strict=False)),
                *(cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)),
            ]
        )
        for line in lines
    ]
    return "\n".join(aligned)
