"""A column is defined once: its name, how a row gives its value, where it is shown. Renderers go over the list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Generic, TypeVar

from rich import box
from rich.table import Table
from rich.text import Text

Row = TypeVar("Row")
Curve = tuple[Sequence[float | None], Sequence[float | None]]
"""accuracy and half-width of its interval at each position of a stream"""
LONGEST = 24
"""letters of a word that a terminal keeps on one line"""


@dataclass(frozen=True)
class Column(Generic[Row]):
    name: str
    value: Callable[[Row], str]
    """what stands in the column, as plain text or Markdown"""
    right: bool = False
    """aligned to the right"""
    tables: tuple[str, ...] = ()
    """those that show it, where a list of columns serves several; () = all"""
    optional: bool = False
    """left out where no row has anything in it"""


def shown(columns: Sequence[Column[Row]], rows: Sequence[Row], table: str = "") -> list[Column[Row]]:
    """The columns of one table over these rows."""
    here = [c for c in columns if not table or not c.tables or table in c.tables]
    return [c for c in here if not c.optional or any(c.value(row) for row in rows)]


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A GitHub table; columns in ``right`` are aligned to the right."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", " ".join(c.split())) for c in cells) + " |"

    rule = ["--:" if n in right else "---" for n in range(len(header))]
    return "\n".join([line(header), "|" + "|".join(rule) + "|", *(line(r) for r in rows)])


def markdown(columns: Sequence[Column[Row]], rows: Sequence[Row | str], table: str = "") -> str:
    """Columns as a GitHub table; a row that is only a text is a heading over those below it."""
    full = [row for row in rows if not isinstance(row, str)]
    columns = shown(columns, full, table)
    lines = [
        [f"**{row}**", *[""] * (len(columns) - 1)] if isinstance(row, str) else [c.value(row) for c in columns]
        for row in rows
    ]
    return markdown_table([c.name for c in columns], lines, [n for n, c in enumerate(columns) if c.right])


def terminal(
    title: str, columns: Sequence[Column[Row]], rows: Sequence[Row], styles: Mapping[str, Callable[[Row], str]] = {}
) -> Table:
    """Columns as a table of a terminal: figures stay on one line, words wrap between words, none is cut.

    ``styles``: name of a column -> the style of its text in a row.
    """
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        words = " ".join([column.name, *map(column.value, rows)]).split()
        if column.right:
            table.add_column(column.name, justify="right", no_wrap=True, overflow="fold")
        else:
            table.add_column(column.name, min_width=min(max(map(len, words), default=0), LONGEST), overflow="fold")
    for row in rows:
        table.add_row(*(Text(c.value(row), styles[c.name](row) if c.name in styles else "") for c in columns))
    return table


def html_table(
    columns: Sequence[Column[Row]],
    groups: Mapping[str, Sequence[Row]],
    drawn: Mapping[str, Callable[[Row], str]],
    kind: str = "",
) -> str:
    """Columns as HTML, the first as the heading of its row; ``drawn`` gives the HTML of cells that are more than text.

    ``groups``: heading -> the rows below it; "" = no heading.
    """
    number = {c.name: ' class="number"' if c.right else "" for c in columns}
    heads = "".join(f'<th scope="col"{number[c.name]}>{escape(c.name)}</th>' for c in columns)
    parts = [f'<table class="{kind}">' if kind else "<table>", f"<thead><tr>{heads}</tr></thead>"]
    for heading, rows in groups.items():
        parts.append("<tbody>")
        if heading:
            parts.append(f'<tr><th scope="rowgroup" colspan="{len(columns)}">{escape(heading)}</th></tr>')
        for row in rows:
            first, *rest = (drawn.get(c.name, lambda row, c=c: code(c.value(row)))(row) for c in columns)
            cells = (
                f'<td{number[c.name]} data-label="{escape(c.name)}">{inner}</td>'
                for c, inner in zip(columns[1:], rest, strict=True)
            )
            parts.append(f'<tr><th scope="row">{first}</th>{"".join(cells)}</tr>')
        parts.append("</tbody>")
    return "\n".join([*parts, "</table>"])


def code(words: str) -> str:
    """Text as HTML; what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))


def shown_positions(length: int, most: int = 8) -> list[int]:
    """Positions of a stream, from 1: all of a short one, else the powers of two and the last."""
    if length <= most:
        return list(range(1, length + 1))
    powers = [2**n for n in range(length.bit_length()) if 2**n < length]
    return [*powers, length]


def position_columns(
    positions: Sequence[int], curve: Callable[[Row], Curve], task: str, widest: str
) -> list[Column[Row]]:
    """Accuracy in % at positions of a stream, then its widest interval; a shorter stream leaves cells empty.

    Intervals of a row are much the same at all positions, so one stands for them. ``task`` goes before each position.
    """

    def accuracy_at(position: int) -> Callable[[Row], str]:
        def value(row: Row) -> str:
            accuracy = curve(row)[0]
            if position > len(accuracy):
                return ""
            found = accuracy[position - 1]
            return "not a number" if found is None else f"{100 * found:.1f}"

        return value

    def widest_of(row: Row) -> str:
        intervals = [i for i in curve(row)[1] if i is not None]
        return f"{100 * max(intervals):.1f}" if intervals else ""

    columns = [Column(f"{task}{p}", accuracy_at(p), right=True) for p in positions]
    return [*columns, Column(widest, widest_of, right=True)]
