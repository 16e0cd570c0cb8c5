"""One self-contained HTML page: no network, no scripts, every figure inline."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from engram.errors import EngramError
from engram.report.columns import html_table
from engram.report.contents import (
    QUICKSTART_COLUMNS,
    EpisodePicture,
    PositionCurve,
    QuickstartData,
    QuickstartRow,
    ReliabilityCurve,
    class_letter,
    duration,
)
from engram.report.figures import accuracy_by_position, adjacency_maps, episode_matrix, reliability_diagram
from engram.report.style import STYLE

__all__ = [
    "EpisodePicture",
    "PositionCurve",
    "QuickstartData",
    "QuickstartRow",
    "ReliabilityCurve",
    "Section",
    "quickstart_page",
    "render_page",
]


NO_BREAK_SPACE, NO_BREAK_HYPHEN = "\u00a0", "\u2011"


@dataclass(frozen=True)
class Section:
    """A heading, one sentence on how to read what follows, and the HTML of it."""

    title: str
    how_to_read: str
    body: str


def render_page(
    title: str, headline: str, sections: Sequence[Section], footer: str, style: str = STYLE, contents: bool = False
) -> str:
    """The page as one string. ``title``, ``headline`` and ``footer`` are plain text; ``contents`` lists sections."""
    parts = [
        f'<section id="{anchor(s.title)}">\n<h2>{escape(s.title)}</h2>\n<p class="how">{escape(s.how_to_read)}</p>\n'
        f"{s.body}\n</section>"
        for s in sections
    ]
    links = [f'<a href="#{anchor(s.title)}">{escape(s.title.split(",")[0])}</a>' for s in sections]
    listed = ["<nav>", *links, "</nav>"] if contents else []
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>",
            f"<body>\n<header>\n<h1>{escape(title)}</h1>",
            f'<p class="headline">{escape(headline)}</p>\n</header>',
            *listed,
            "<main>",
            *parts,
            f"</main>\n<footer>{escape(footer)}</footer>\n</body>\n</html>\n",
        ]
    )


def anchor(title: str) -> str:
    """``Table 1: miniImageNet`` -> ``table-1-miniimagenet``"""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def quickstart_page(data: QuickstartData) -> str:
    """Headline, table, then pictures, each with one sentence on how to read it."""
    if not data.rows:
        raise EngramError("the quickstart page has no rows: give at least one system's accuracy")
    sections = [Section("Results", data.how_to_read, results_table(data.rows))]
    if data.named:
        sections.append(_named_section(data.named))
    if data.positions:
        sections.append(_positions_section(data.positions))
    if data.episodes:
        sections.append(_episodes_section(data.episodes))
    if data.reliability:
        sections.append(_reliability_section(data.reliability))
    footer = f"Made in {duration(data.seconds_total)} on {data.device}, with Engram at commit {data.commit}."
    return render_page("Engram quickstart", headline(data), sections, footer)


def by_setting(rows: Sequence[QuickstartRow]) -> dict[str, list[QuickstartRow]]:
    """Rows of each setting, in the order in which settings first appear."""
    groups: dict[str, list[QuickstartRow]] = {}
    for row in rows:
        groups.setdefault(row.setting, []).append(row)
    return groups


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
        figure = f"{100 * top.accuracy:.1f} ± {100 * top.interval:.1f} %".replace(" ", NO_BREAK_SPACE)
        clauses.append(f"{figure} right on {setting.replace('-', NO_BREAK_HYPHEN)} tasks ({names})")
    return f"{duration(data.seconds_total)} on {data.device}: {'; '.join(clauses)}."


def results_table(rows: Sequence[QuickstartRow]) -> str:
    """Systems grouped by setting; the highest of a setting, and what it cannot be told from, in bold."""
    groups = by_setting(rows)
    best = [row for group in groups.values() for row in leaders(group)]
    system, accuracy, *_ = QUICKSTART_COLUMNS

    def named(row: QuickstartRow) -> str:
        return escape(row.system) + (f'<span class="note">{escape(row.note)}</span>' if row.note else "")

    def measured(row: QuickstartRow) -> str:
        weight = ' class="best"' if row in best else ""
        width = min(max(100 * row.accuracy, 0), 100)
        return f'<span{weight}>{accuracy.value(row)}</span><span class="bar"><i style="width: {width:.1f}%"></i></span>'

    return html_table(QUICKSTART_COLUMNS, groups, {system.name: named, accuracy.name: measured})


def figure_grid(pictures: Sequence[str], kind: str = "figures") -> str:
    """Drawings side by side as the page's width allows; ``kind`` is a class of the style sheet."""
    return "\n".join([f'<div class="{kind}">', *(f"<figure>{limited(p)}</figure>" for p in pictures), "</div>"])


def limited(svg: str, growth: float = 1.35) -> str:
    """A drawing that fills its place but is not blown up beyond reading size."""
    match = re.search(r'width="(\d+)"', svg)
    width = round(int(match.group(1)) * growth) if match else 600
    return svg.replace('style="stroke-linejoin: round"', f'style="stroke-linejoin: round; max-width: {width}px"', 1)


def _positions_section(curves: Sequence[PositionCurve]) -> Section:
    sentence = (
        "Each line follows one system along a stream of tasks in shuffled order, the band is its 95 % interval: a line "
        "that rises made use of earlier tasks, a flat one did not."
    )
    return Section("Accuracy along a stream", sentence, figure_grid([accuracy_by_position(curves)], "figures one"))


def _named_section(curves: Sequence[PositionCurve]) -> Section:
    sentence = (
        "Here classes keep their names when they come back, twenty of them in every task: the same model and tasks, "
        "once with what it remembers of earlier tasks and once with every task answered afresh. Nothing but content "
        "and name is remembered, so the rise is honest."
    )
    return Section("Memory along a named stream", sentence, figure_grid([accuracy_by_position(curves)], "figures one"))


def _reliability_section(curves: Sequence[ReliabilityCurve]) -> Section:
    sentence = (
        "Points on the dashed line mean that answers given with 80 % confidence are right 80 % of the time; points "
        "below it are overconfident, above it too timid; the bars show how many answers had each confidence."
    )
    body = figure_grid([reliability_diagram(c) for c in curves], "figures small")
    return Section("Can the confidence be trusted?", sentence, body)


def _episodes_section(pictures: Sequence[EpisodePicture]) -> Section:
    sentence = (
        "Labelled supports stand along the top, queries down the side, and a bar gives the probability of each class: "
        "the true class is framed and blue, a wrong winner is orange, and the figure at the end is the true class's."
    )
    body = "\n".join(episode_html(p) for p in pictures)
    if any(p.edges is not None for p in pictures):
        sentence += (
            " Beside it is the graph, layer by layer: the stronger the blue, the more two images are taken for one "
            "class; blocks on the diagonals mean that it sorted them."
        )
    return Section("Tasks, answered", sentence, f'<div class="figures wide">{body}</div>')


def episode_html(picture: EpisodePicture) -> str:
    maps = adjacency_maps(picture)
    layers = "\n".join(['<div class="layers">', *(limited(m) for m in maps), "</div>"]) if maps else ""
    names = "".join(f"<span><b>{class_letter(c)}</b> {escape(n)}</span>" for c, n in enumerate(picture.class_names))
    return (
        f'<figure><h3>{escape(picture.title)}</h3>\n<div class="episode{" graph" if maps else ""}">'
        f"{limited(episode_matrix(picture), 1.0)}\n{layers}</div>\n"
        f'<p class="legend">{names}</p></figure>'
    )
