"""Figures of memory along the stream, as SVG files that read on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from engram.evaluation.metrics import interval
from engram.ledger import RunRecord, correctness
from engram.report.lines import MOST, draw_line, name_lines, panels
from engram.report.stream_cells import Cell, stream_cells
from engram.report.svg import INK, SERIES_DARK, SERIES_LIGHT, TEXT_SIZE, new_figure, style_axes, to_svg

LENGTH = 128
BLOCKS = ((1, 1), (2, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 96), (97, 128))
"""positions of a stream, ends included; the last block is the last quarter"""
MIN_STREAMS = 30
"""a bin that fewer streams have is not drawn"""
BINNED = {
    "forgetting": ("by_gap", "tasks since the class was last met"),
    "encounters": ("by_encounters", "earlier tasks with the class"),
}
FOLDER = Path("docs/figures")
HEIGHT = 190
"""of a panel, in pixels"""
TO = "\N{EN DASH}"


@dataclass(frozen=True)
class Line:
    label: str
    remembers: bool
    panel: tuple[str, str]
    """kind of stream, encoder"""
    bins: Sequence[str]
    accuracy: np.ndarray
    interval: np.ndarray


def stream_figures(records: Sequence[RunRecord], folder: Path) -> dict[str, str]:
    """File name -> SVG with colours of its own, from streams of `LENGTH` tasks; without any, no figures."""
    return {name: standalone(drawing) for name, drawing in stream_drawings(records, folder).items()}


def stream_drawings(records: Sequence[RunRecord], folder: Path) -> dict[str, str]:
    """The same for a page, whose colours they take."""
    cells = [cell for cell in stream_cells(records) if cell.length == LENGTH]
    along = [position_line(cell, folder) for cell in cells]
    blind = [line for cell, line in zip(cells, along, strict=True) if not cell.reads_names]
    along += [replace(line, panel=("named", line.panel[1])) for line in blind if line.panel[0] == "anonymous"]
    cells = [cell for cell in cells if cell.remembers]
    figures = {}
    for names in ("named", "anonymous"):
        if lines := [line for line in along if line.panel[0] == names]:
            title = f"Accuracy along {names} streams of {LENGTH} tasks"
            figures[f"memory_along_stream_{names}.svg"] = draw(lines, "task in the stream", title)
    for name, (key, x_label) in BINNED.items() if cells else ():
        lines = [line for cell in cells if (line := bin_line(cell, key)).bins]
        figures[f"{name}.svg"] = draw(lines, x_label, f"Accuracy by {x_label}, streams of {LENGTH} tasks")
    return figures


def position_line(cell: Cell, folder: Path) -> Line:
    """Means over blocks of positions, with intervals over streams."""
    by_task = correctness(cell.evaluation, folder).mean(-1)
    means = np.stack([by_task[:, first - 1 : last].mean(1) for first, last in BLOCKS])
    bins = [str(a) if a == b else f"{a}{TO}{b}" for a, b in BLOCKS]
    return _line(cell, bins, means.mean(1), np.array([interval(m) for m in means]))


def bin_line(cell: Cell, key: str) -> Line:
    table: dict[str, list[Any]] = cell.evaluation.metrics["stream"][key]
    enough = [n >= MIN_STREAMS for n in table["n"]]
    bins = [name.replace("-", TO) for name, keep in zip(table["bin"], enough, strict=True) if keep]
    values = [np.array(table[k], float)[enough] for k in ("accuracy", "interval")]
    return _line(cell, bins, *values)


def _line(cell: Cell, bins: Sequence[str], accuracy: np.ndarray, half_width: np.ndarray) -> Line:
    return Line(
        cell.label(), cell.remembers and not cell.erased, (cell.names, cell.backbone), bins, accuracy, half_width
    )


def draw(lines: Sequence[Line], x_label: str, title: str) -> str:
    """A panel for each kind of stream and encoder, in two where it has too many lines: with memory, and without.

    Streams of one kind share a scale.
    """
    bins = sorted({name for line in lines for name in line.bins}, key=_start)
    groups = [group for panel in sorted({line.panel for line in lines}, key=_order) for group in _groups(lines, panel)]
    figure = new_figure(720, 20 + HEIGHT * len(groups))
    grid = figure.subplots(len(groups), 1, sharex=True, squeeze=False, gridspec_kw={"hspace": 0.06})
    first: dict[str, Axes] = {}
    for axes, group in zip(grid[:, 0], groups, strict=True):
        kind = group[0].panel[0]
        if kind in first:
            axes.sharey(first[kind])
        first.setdefault(kind, axes)
        style_axes(axes, x_label if group is groups[-1] else "", "accuracy")
        axes.set_title(_heading(group, groups), loc="left", color=INK, fontsize=TEXT_SIZE, weight="bold")
        for line in group:
            draw_line(axes, line.label, np.array([bins.index(n) for n in line.bins]), line.accuracy, line.interval)
        axes.set_xticks(range(len(bins)), bins, fontsize=TEXT_SIZE - 2)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.margins(x=0.04)
    for axes in grid[:, 0]:  # when the axes that are shared know their ends
        name_lines(axes, HEIGHT - 45)
    return to_svg(figure, f"{title}: {', '.join(dict.fromkeys(line.label for line in lines))}")


def _order(panel: tuple[str, str]) -> tuple[bool, str]:
    return panel[0] != "named", panel[1]


def _groups(lines: Sequence[Line], panel: tuple[str, str]) -> list[Sequence[Line]]:
    here = sorted((line for line in lines if line.panel == panel), key=lambda line: (not line.remembers, line.label))
    if len(here) <= MOST:
        return [here]
    return [part for kind in (True, False) for part in panels([line for line in here if line.remembers == kind])]


def _heading(group: Sequence[Line], groups: Sequence[Sequence[Line]]) -> str:
    alone = sum(other[0].panel == group[0].panel for other in groups) == 1
    return ", ".join(group[0].panel) + ("" if alone else ": with memory" if group[0].remembers else ": without memory")


def _start(name: str) -> int:
    return int(name.split(TO)[0].rstrip("+"))


def standalone(svg: str) -> str:
    """With colours of its own: a file shown as an image inherits none from the page."""

    def rules(ink: str, colours: Sequence[str]) -> str:
        series = "".join(f"--series-{n}:{colour};" for n, colour in enumerate(colours, 1))
        return f"svg{{color:{ink};{series}}}"

    dark = rules("#e6edf3", SERIES_DARK)
    style = f"<style>{rules('#1f2328', SERIES_LIGHT)}@media(prefers-color-scheme:dark){{{dark}}}</style>"
    place = svg.index(">") + 1
    return f"{svg[:place]}\n{style}{svg[place:]}\n"
