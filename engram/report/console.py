"""The same tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from engram.ledger import RunRecord
from engram.protocol import describe_protocol
from engram.report.contents import PositionCurve, QuickstartRow
from engram.report.rows import percent


def quickstart_table(rows: Sequence[QuickstartRow]) -> Table:
    """Systems grouped by setting, accuracy with its 95 % interval."""
    table = Table(title="Accuracy, % (± 95 % interval over independent sequences)", title_justify="left")
    table.add_column("setting")
    table.add_column("system")
    for name in ("accuracy", "ECE", "training"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note")
    settings = list(dict.fromkeys(r.setting for r in rows))
    for setting in settings:
        group = [r for r in rows if r.setting == setting]
        for number, row in enumerate(group):
            table.add_row(
                setting if number == 0 else "",
                row.system,
                f"{100 * row.accuracy:.1f} ± {100 * row.interval:.1f}",
                "" if row.ece is None else f"{row.ece:.3f}",
                "none" if row.seconds is None else f"{row.seconds:.0f} s",
                row.note,
                end_section=number == len(group) - 1,
            )
    return table


def shown_positions(length: int, most: int = 8) -> list[int]:
    """Positions of a stream, from 1: all of a short one, else the powers of two and the last."""
    if length <= most:
        return list(range(1, length + 1))
    powers = [2**n for n in range(length.bit_length()) if 2**n < length]
    return [*powers, length]


def positions_table(curves: Sequence[PositionCurve], title: str = "Accuracy, %, by position in the stream") -> Table:
    """Accuracy at positions of the stream and the widest interval; a shorter stream leaves cells empty."""
    table = Table(title=title, title_justify="left")
    table.add_column("system")
    positions = sorted({p for c in curves for p in shown_positions(len(c.accuracy))})
    for position in positions:
        table.add_column(f"{position}", justify="right", no_wrap=True)
    table.add_column("± at most", justify="right", no_wrap=True)
    for curve in curves:
        cells = [f"{100 * curve.accuracy[p - 1]:.1f}" if p <= len(curve.accuracy) else "" for p in positions]
        table.add_row(curve.label, *cells, f"{100 * max(curve.interval):.1f}" if len(curve.interval) else "")
    return table


def record_table(record: RunRecord) -> Table:
    """What one run scored, protocol by protocol."""
    table = Table(title=f"{record.recipe_name}, {record.status}", title_justify="left")
    table.add_column("protocol")
    for name in ("accuracy, %", "NLL", "ECE", "Brier"):
        table.add_column(name, justify="right", no_wrap=True)
    for evaluation in record.evaluations:
        metrics = evaluation.metrics
        scores = (f"{metrics[name]:.3f}" for name in ("nll", "ece", "brier"))
        figure = percent(metrics["accuracy"], metrics["interval"])
        table.add_row(describe_protocol(evaluation.protocol), figure, *scores)
        by_position = metrics["accuracy_by_position"]
        if len(by_position) > 1:
            shown = shown_positions(len(by_position))
            table.add_row("  by position " + ", ".join(f"{p}: {100 * by_position[p - 1]:.1f}" for p in shown))
    return table


def comparison_table(first: str, second: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Paired differences, each with its interval and a word where it is inside the noise."""
    table = Table(title=f"{first}\nminus {second}", title_justify="left")
    for name in ("protocol", "part", "difference, points", "sequences", "reading"):
        table.add_column(name)
    for row in rows:
        clear = abs(row["difference"]) > row["interval"]
        reading = "clear" if clear else "inside the noise"
        figure = f"{100 * row['difference']:+.2f} ± {100 * row['interval']:.2f}"
        table.add_row(describe_protocol(row["protocol"]), row["part"], figure, str(row["n"]), reading)
    return table


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
