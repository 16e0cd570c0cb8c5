"""The same tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from engram.report.contents import PositionCurve, QuickstartRow


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


def positions_table(curves: Sequence[PositionCurve]) -> Table:
    """Accuracy at positions of the stream and the widest interval; a shorter stream leaves cells empty."""
    table = Table(title="Accuracy, %, by position in the stream", title_justify="left")
    table.add_column("system")
    positions = sorted({p for c in curves for p in shown_positions(len(c.accuracy))})
    for position in positions:
        table.add_column(f"{position}", justify="right", no_wrap=True)
    table.add_column("± at most", justify="right", no_wrap=True)
    for curve in curves:
        cells = [f"{100 * curve.accuracy[p - 1]:.1f}" if p <= len(curve.accuracy) else "" for p in positions]
        table.add_row(curve.label, *cells, f"{100 * max(curve.interval):.1f}" if len(curve.interval) else "")
    return table
