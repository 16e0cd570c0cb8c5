"""What the quickstart shows: its page, its table in a terminal, and ``<!-- quickstart:begin 20-way -->`` in README."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from engram.errors import EngramError
from engram.report.episode import EpisodePicture
from engram.report.figures import PositionCurve, ReliabilityCurve, accuracy_by_position
from engram.report.page import Section, episode_html, figure_grid, reliability_section, render_page, wide
from engram.report.rows import ResultRow
from engram.report.table import Column, Table, headed, percent, position_columns, shown_positions

TITLE = "Engram quickstart"
RECIPES = {
    "ProtoNet": "proto_net/glyphs_quick",
    "CML-BGNN, no history": "cml_bgnn/glyphs_quick_no_history",
    "CML-BGNN, the paper's history": "cml_bgnn/glyphs_quick",
    "Content memory": "content_memory/glyphs_quick",
}
FLOORS = {"chance": "chance", "pixel nearest centroid": "pixel_centroid"}
"""methods that need no training"""
SETTINGS: dict[str, dict[str, Any]] = {
    "5-way 1-shot": {"n_way": 5, "n_sequences": 1200},
    "20-way 1-shot": {"n_way": 20, "n_sequences": 200},
}
SINGLE = {"dataset": "glyphs", "stream_length": 1, "n_query": 1}
NAMES = {setting.split()[0]: setting for setting in SETTINGS}
NO_BREAK_SPACE, NO_BREAK_HYPHEN = "\u00a0", "\u2011"
NAMED_STREAM = (
    "Here classes keep their names when they come back, twenty of them in every task: the same model and tasks, once "
    "with what it remembers of earlier tasks and once with every task answered afresh. Nothing but content and name is "
    "remembered, so the rise is honest."
)
STREAM = (
    "Each line follows one system along a stream of tasks in shuffled order, the band is its 95 % interval: a line "
    "that rises made use of earlier tasks, a flat one did not."
)
TASKS = (
    "Labelled supports stand along the top, queries down the side, and a bar gives the probability of each class: "
    "the true class is framed and blue, a wrong winner is orange, and the figure at the end is the true class's."
)
GRAPH = (
    " Beside it is the graph, layer by layer: the stronger the blue, the more two images are taken for one class; "
    "blocks on the diagonals mean that it sorted them."
)


@dataclass(frozen=True)
class QuickstartRow:
    """One system answering one setting. Accuracy, interval and ECE are fractions of 1."""

    system: str
    setting: str
    """``5-way 1-shot``"""
    accuracy: float
    interval: float
    """half-width of the 95 % interval over independent sequences"""
    ece: float | None = None
    seconds: float | None = None
    """training time; None where nothing was trained"""
    note: str = ""

    @property
    def figure(self) -> str:
        return percent(self.accuracy, self.interval, 1)


@dataclass(frozen=True)
class QuickstartData:
    rows: Sequence[QuickstartRow]
    seconds_total: float
    device: str
    commit: str
    how_to_read: str
    episodes: Sequence[EpisodePicture] = ()
    positions: Sequence[PositionCurve] = ()
    reliability: Sequence[ReliabilityCurve] = ()
    named: Sequence[PositionCurve] = ()
    """along a stream whose classes keep their names"""


def duration(seconds: float) -> str:
    """``48 s``, ``2 min 5 s``"""
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"


def quickstart_table(rows: Sequence[QuickstartRow], place: str, name: str = "") -> Table[QuickstartRow]:
    """For a ``terminal``, the README (``text``, of one setting) or the ``page``.

    Systems are grouped by setting; the highest of a setting, and what it cannot be told from, is bold on the page.
    """
    groups = by_setting(rows)
    best = [row for group in groups.values() for row in leaders(group)]

    def system(row: QuickstartRow) -> str:
        return escape(row.system) + (f'<span class="note">{escape(row.note)}</span>' if row.note else "")

    def measured(row: QuickstartRow) -> str:
        weight, width = ' class="best"' if row in best else "", min(max(100 * row.accuracy, 0), 100)
        return f'<span{weight}>{row.figure}</span><span class="bar"><i style="width: {width:.1f}%"></i></span>'

    terminal, text, page = ("terminal",), ("text",), ("page",)
    columns: tuple[Column[QuickstartRow], ...] = (
        Column("Setting", lambda row: row.setting if row is groups[row.setting][0] else "", places=terminal),
        Column("System", lambda row: "\n".join(filter(None, (row.system, row.note))), places=terminal),
        Column("System", lambda row: row.system, places=page, html=system),
        Column(f"{name:<30}", lambda row: row.system, places=text),
        Column("Accuracy, %", lambda row: row.figure, right=True, places=terminal + page, html=measured),
        Column("accuracy, %", lambda row: row.figure, right=True, places=text),
        Column("ECE", lambda r: "" if r.ece is None else f"{r.ece:.3f}", right=True, places=terminal + page),
        Column("Training", lambda r: _trained(r, duration), right=True, places=terminal + page),
        Column("training", lambda r: _trained(r, "{:.0f} s".format), right=True, places=text),
    )
    ordered = [row for group in groups.values() for row in group]
    lines = headed(ordered, lambda row: row.setting if place == "page" else "")
    return Table(columns, lines, place, "± 95 % interval over independent sequences")


def _trained(row: QuickstartRow, written: Callable[[float], str]) -> str:
    return "none" if row.seconds is None else written(row.seconds)


def positions_table(
    curves: Sequence[PositionCurve], title: str = "Accuracy, %, by position in the stream"
) -> Table[PositionCurve]:
    """Accuracy at positions of the stream; a shorter stream leaves cells empty."""
    positions = sorted({p for c in curves for p in shown_positions(len(c.accuracy))})
    columns: tuple[Column[PositionCurve], ...] = (
        Column("System", lambda curve: curve.label),
        *position_columns(positions, lambda curve: (curve.accuracy, curve.interval), "", "±"),
    )
    return Table(columns, curves, title=f"{title} (± the widest interval)")


def by_setting(rows: Sequence[QuickstartRow]) -> dict[str, list[QuickstartRow]]:
    """Rows of each setting, in the order in which settings first appear."""
    return {setting: [r for r in rows if r.setting == setting] for setting in dict.fromkeys(r.setting for r in rows)}


def leaders(rows: Sequence[QuickstartRow]) -> list[QuickstartRow]:
    """The highest row, first, and those whose interval overlaps its own: no winner is named that was not shown."""
    top = max(rows, key=lambda r: r.accuracy)
    tied = [r for r in rows if r is not top and r.accuracy + r.interval >= top.accuracy - top.interval]
    return [top, *sorted(tied, key=lambda r: -r.accuracy)]


def headline(data: QuickstartData) -> str:
    """One sentence: the time, and the best accuracy of each setting with its interval."""
    clauses = []
    for setting, rows in by_setting(data.rows).items():
        top, *tied = leaders(rows)
        names = f"{top.system}, level with {' and '.join(r.system for r in tied)}" if tied else top.system
        figure = f"{top.figure} %".replace(" ", NO_BREAK_SPACE)
        clauses.append(f"{figure} right on {setting.replace('-', NO_BREAK_HYPHEN)} tasks ({names})")
    return f"{duration(data.seconds_total)} on {data.device}: {'; '.join(clauses)}."


def quickstart_page(data: QuickstartData) -> str:
    """Headline, table, then pictures, each with one sentence on how to read it."""
    if not data.rows:
        raise EngramError("the quickstart page has no rows: give at least one system's accuracy")

    def along(curves: Sequence[PositionCurve]) -> str:
        return figure_grid([accuracy_by_position(curves)], "figures one") if curves else ""

    graph = GRAPH if any(p.edges is not None for p in data.episodes) else ""
    sections = (
        Section("Results", data.how_to_read, quickstart_table(data.rows, "page").html()),
        Section("Memory along a named stream", NAMED_STREAM, along(data.named)),
        Section("Accuracy along a stream", STREAM, along(data.positions)),
        Section("Tasks, answered", TASKS + graph, wide([episode_html(p) for p in data.episodes])),
        reliability_section(data.reliability),
    )
    footer = f"Made in {duration(data.seconds_total)} on {data.device}, with Engram at commit {data.commit}."
    return render_page(TITLE, headline(data), sections, footer)


def quickstart_section(name: str, rows: Sequence[ResultRow]) -> str:
    """The rows of one setting as plain text, from the newest records."""
    found = recorded_rows(rows, NAMES[name])
    return f"```text\n{quickstart_table(found, 'text', NAMES[name]).text()}\n```" if found else "Not run yet."


def recorded_rows(rows: Sequence[ResultRow], setting: str) -> list[QuickstartRow]:
    """A row for each system of the quickstart that has a finished answer to the setting."""
    asked, recorded = {**SINGLE, **SETTINGS[setting]}.items(), []
    answers = [r for r in rows if r.evaluation and all(r.protocol.get(key) == value for key, value in asked)]
    for system, name in {**FLOORS, **RECIPES}.items():
        if found := [r for r in answers if name in (r.record.method, r.record.recipe_today)]:
            newest = max(found, key=lambda row: row.record.started)
            metrics = newest.evaluation.metrics if newest.evaluation else {}
            figures = metrics["accuracy"], metrics["interval"]
            recorded.append(QuickstartRow(system, setting, *figures, seconds=newest.trained.get("seconds")))
    return recorded
