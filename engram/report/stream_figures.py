"""Figures of memory along the stream, as SVG files that read on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from engram.evaluation.metrics import interval
from engram.ledger import RunRecord, correctness
from engram.report.stream_cells import Cell, stream_cells
from engram.report.svg import (
    DASHES,
    INK,
    MARKERS,
    SERIES,
    SERIES_DARK,
    SERIES_LIGHT,
    TEXT_SIZE,
    legend_above,
    new_figure,
    style_axes,
    to_svg,
)

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
GREY = 5
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
    """Panels: a row for each kind of stream, a column for each encoder; one scale for a row, one legend."""
    kinds = sorted({line.panel[0] for line in lines}, reverse=True)
    encoders = sorted({line.panel[1] for line in lines})
    looks = _looks(lines)
    bins = sorted({name for line in lines for name in line.bins}, key=_start)
    columns = min(2, len(encoders))
    figure = new_figure(60 + 350 * len(encoders), 214 * len(kinds) + 20 * ceil(len(looks) / columns))
    grid = figure.subplots(
        len(kinds), len(encoders), sharex=True, sharey="row", squeeze=False, gridspec_kw={"hspace": 0.08}
    )
    for row, kind in enumerate(kinds):
        for column, encoder in enumerate(encoders):
            axes = grid[row][column]
            style_axes(axes, x_label if row == len(kinds) - 1 else "", "accuracy" if column == 0 else "")
            axes.set_title(f"{kind}, {encoder}", loc="left", color=INK, fontsize=TEXT_SIZE, weight="bold")
            here = [line for line in lines if line.panel == (kind, encoder)]
            for line in here:
                _draw_line(axes, line, looks[line.label], bins)
            if not here:
                axes.text(0.5, 0.5, "no run yet", color=INK, ha="center", fontsize=TEXT_SIZE, transform=axes.transAxes)
            axes.set_xticks(range(len(bins)), bins, fontsize=TEXT_SIZE - 2)
            axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
            axes.margins(x=0.04)
    _legend(figure, grid[0][0], looks, columns)
    return to_svg(figure, f"{title}: {', '.join(looks)}")


def _start(name: str) -> int:
    return int(name.split(TO)[0].rstrip("+"))


def _looks(lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    """How each system is drawn, in the order of the legend. What has no past to read is grey and dashed in every
    figure; colour is never the only sign."""
    looks: dict[str, dict[str, Any]] = {}
    for remembers in (True, False):
        for number, label in enumerate(sorted({line.label for line in lines if line.remembers == remembers})):
            colour = number % GREY if remembers else GREY
            dashes = (0, 3, 2, 4)[number % 4] if remembers else 1 + number % (len(DASHES) - 1)
            marker = MARKERS[number % len(MARKERS)]
            looks[label] = {"color": SERIES[colour], "linestyle": DASHES[dashes], "marker": marker}
    return looks


def _draw_line(axes: Axes, line: Line, look: dict[str, Any], bins: list[str]) -> None:
    x = np.array([bins.index(name) for name in line.bins])
    low, high = line.accuracy - line.interval, line.accuracy + line.interval
    axes.fill_between(x, low, high, color=look["color"], alpha=0.16, linewidth=0)
    axes.plot(x, line.accuracy, linewidth=1.9, markersize=4.5, **look)


def _legend(figure: Figure, axes: Axes, looks: dict[str, dict[str, Any]], columns: int) -> None:
    for label, look in looks.items():
        axes.plot([], [], linewidth=1.9, markersize=4.5, label=label, **look)
    legend_above(figure, columns)


def standalone(svg: str) -> str:
    """With colours of its own: a file shown as an image inherits none from the page."""

    def rules(ink: str, colours: Sequence[str]) -> str:
        series = "".join(f"--series-{n}:{colour};" for n, colour in enumerate(colours, 1))
        return f"svg{{color:{ink};{series}}}"

    dark = rules("#e6edf3", SERIES_DARK)
    style = f"<style>{rules('#1f2328', SERIES_LIGHT)}@media(prefers-color-scheme:dark){{{dark}}}</style>"
    place = svg.index(">") + 1
    return f"{svg[:place]}\n{style}{svg[place:]}\n"
