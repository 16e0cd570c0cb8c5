"""A table is a value: columns, each defined once, and rows; a method of it writes it for each place it is shown in."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from itertools import pairwise
from typing import Any, Generic, TypeVar, cast

from rich import box
from rich.table import Table as TerminalTable
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
    places: tuple[str, ...] = ()
    """that show it, where a list of columns serves several; () = all"""
    whole: bool = False
    """on one line of a terminal, as figures are"""
    optional: bool = False
    """left out where no row has anything in it"""
    once: bool = False
    """left out too where all rows say the same; Markdown tells it below the table"""
    html: Callable[[Row], str] | None = None
    """of a cell that is more than text"""
    style: Callable[[Row], str] | None = None
    """of a cell's text in a terminal"""


@dataclass(frozen=True)
class Table(Generic[Row]):
    columns: Sequence[Column[Row]]
    rows: Sequence[Row | str]
    """one that is only a text is a heading over those below it"""
    place: str = ""
    """which of its columns' places it is written for; "" = any"""
    title: str = ""
    note: str = ""
    empty: str = ""
    """what stands in Markdown where there are no rows"""

    @property
    def full(self) -> list[Row]:
        """Rows that are no headings."""
        return [row for row in self.rows if not isinstance(row, str)]

    @property
    def shown(self) -> list[Column[Row]]:
        found = [(column, set(map(column.value, self.full))) for column in self._here]
        told = [(c, values) for c, values in found if any(values) or not (c.optional or c.once)]
        return [c for c, values in told if not c.once or len(values) > 1 or len(self.full) == 1]

    @property
    def _here(self) -> list[Column[Row]]:
        return [c for c in self.columns if not self.place or not c.places or self.place in c.places]

    @property
    def said_once(self) -> str:
        """``In every row: Device cpu, 2 threads.``; "" where every column shows its own."""
        kept = self.shown
        left_out = {c.name: c.value(self.full[0]) for c in self._here if c.once and c not in kept and self.full}
        words = "; ".join(f"{name} {value}" for name, value in left_out.items() if value)
        return f"In every row: {words}." if words else ""

    def markdown(self) -> str:
        """A GitHub table, its title above and its note below."""
        if not self.rows:
            return self.empty
        columns = self.shown

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", " ".join(c.split())) for c in cells) + " |"

        lines = [line([c.name for c in columns]), f"|{'|'.join('--:' if c.right else '---' for c in columns)}|"]
        for row in self.rows:
            heading = [f"**{row}**", *[""] * (len(columns) - 1)]
            lines.append(line(heading if isinstance(row, str) else [c.value(row) for c in columns]))
        below = " ".join(filter(None, (self.said_once, self.note)))
        return "\n\n".join(filter(None, (self.title, "\n".join(lines), below)))

    def terminal(self) -> TerminalTable:
        """Figures stay on one line, words wrap between words, none is cut; of several lines the first is bright."""
        layout = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0)}
        table = TerminalTable(title=self.title or None, **layout)  # type: ignore[arg-type]
        columns = self.shown
        for column in columns:
            words = " ".join([column.name, *map(column.value, self.full)]).split()
            whole, side = column.right or column.whole, "right" if column.right else "left"
            width = None if whole else min(max(map(len, words), default=0), LONGEST)
            table.add_column(column.name, justify=cast(Any, side), min_width=width, no_wrap=whole, overflow="fold")
        for row in self.full:
            lines = [(c.value(row).partition("\n"), c.style(row) if c.style else "") for c in columns]
            table.add_row(*(Text.assemble((first, style), (end + rest, "dim")) for (first, end, rest), style in lines))
        return table

    def html(self, kind: str = "") -> str:
        """The first column is the heading of its row; ``kind`` is a class of the style sheet."""
        columns = self.shown
        number = {c.name: ' class="number"' if c.right else "" for c in columns}
        heads = "".join(f'<th scope="col"{number[c.name]}>{escape(c.name)}</th>' for c in columns)
        parts = [f'<table class="{kind}">' if kind else "<table>", f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
        for place, row in enumerate(self.rows):
            if isinstance(row, str):
                parts += ["</tbody>", "<tbody>"] if place else []
                parts.append(f'<tr><th scope="rowgroup" colspan="{len(columns)}">{escape(row)}</th></tr>')
                continue
            first, *rest = (c.html(row) if c.html else code(c.value(row)) for c in columns)
            line = f'<tr><th scope="row">{first}</th>'
            for column, inner in zip(columns[1:], rest, strict=True):
                about = f'{number[column.name]} data-label="{escape(column.name)}"' if inner else ' class="empty"'
                line += f"<td{about}>{inner}</td>"
            parts.append(f"{line}</tr>")
        return "\n".join([*parts, "</tbody>", "</table>"])

    def csv(self) -> str:
        text, columns = StringIO(), self.shown
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(c.name for c in columns)
        writer.writerows([c.value(row) for c in columns] for row in self.full)
        return text.getvalue()

    def text(self) -> str:
        """Plain aligned lines: ten thousand of them print at once."""
        columns = self.shown
        lines = [[c.name for c in columns], *([c.value(row) for c in columns] for row in self.full)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        sides = [str.rjust if c.right else str.ljust for c in columns]
        return "\n".join("  ".join(s(c, w) for s, c, w in zip(sides, cells, widths, strict=True)) for cells in lines)


@dataclass(frozen=True)
class Opened:
    """A table that answers a page's question, with the rest of the rows behind a line that opens them."""

    first: Table[Any]
    rest: Table[Any]
    summary: str

    def markdown(self) -> str:
        """Without a rest, or with nothing before it, one plain table."""
        if not (self.first.rows and self.rest.rows):
            return (self.first if self.first.rows else self.rest).markdown()
        return f"{self.first.markdown()}\n\n{folded(self.summary, self.rest.markdown())}"


def folded(summary: str, text: str) -> str:
    """Markdown that a reader opens by a click; the attribute lets mkdocs read it as Markdown too."""
    return f'<details markdown="1">\n<summary>{summary}</summary>\n\n{text}\n\n</details>'


class Notes:
    """Notes below a table, in the order of their first mark: a cell carries the mark, equal notes are told once."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, *texts: str) -> str:
        """`` <sup>1, 3</sup>`` for what is to be noted; "" for nothing."""
        told = [text for text in texts if text]
        self.texts += [text for text in dict.fromkeys(told) if text not in self.texts]
        numbers = ", ".join(str(number) for number in sorted({self.texts.index(text) + 1 for text in told}))
        return f" <sup>{numbers}</sup>" if numbers else ""

    def markdown(self) -> str:
        return "<br>".join(f"<sup>{number}</sup> {text}." for number, text in enumerate(self.texts, 1))


def headed(rows: Sequence[Row], group: Callable[[Row], str]) -> list[Row | str]:
    """Rows with the name of their group above the first of each."""
    names = [group(row) for row in rows]
    starts = [name if name != before else "" for before, name in pairwise(["", *names])]
    return [line for name, row in zip(starts, rows, strict=True) for line in (name, row) if line != ""]


def code(words: str) -> str:
    """Text as HTML; what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))


def percent(accuracy: float | None, interval: float | None = None, digits: int = 2) -> str:
    """``51.83 ± 0.42`` from fractions of 1."""
    if accuracy is None:
        return "not a number"
    half_width = "" if interval is None else f" ± {100 * interval:.{digits}f}"
    return f"{100 * accuracy:.{digits}f}{half_width}"


def points(difference: float, interval: float) -> str:
    """``+1.20 ± 0.42`` from fractions of 1."""
    return f"{100 * difference:+.2f} ± {100 * interval:.2f}"


def shown_positions(length: int, most: int = 8) -> list[int]:
    """Positions of a stream, from 1: all of a short one, else the powers of two and the last."""
    if length <= most:
        return list(range(1, length + 1))
    return [*(2**n for n in range(length.bit_length()) if 2**n < length), length]


def position_columns(
    positions: Sequence[int], curve: Callable[[Row], Curve], task: str, widest: str
) -> list[Column[Row]]:
    """Accuracy in % at positions of a stream, then its widest interval; a shorter stream leaves cells empty.

    Intervals of a row are much the same at all positions, so one stands for them. ``task`` goes before each position.
    """

    def accuracy_at(position: int) -> Callable[[Row], str]:
        return lambda row: "".join(percent(found, digits=1) for found in curve(row)[0][position - 1 : position])

    def widest_of(row: Row) -> str:
        return percent(max(known), digits=1) if (known := [i for i in curve(row)[1] if i is not None]) else ""

    columns = [Column(f"{task}{p}", accuracy_at(p), right=True) for p in positions]
    return [*columns, Column(widest, widest_of, right=True)]
