"""Figures of memory along the stream, as SVG files that read on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from engram.evaluation.metrics import interval
from engram.ledger import RunRecord, correctness, readable_tasks
from engram.report.cells import Filled
from engram.report.figures import MOST, band, draw_line, in_percent, name_lines, panels, spread
from engram.report.streams import STRONGEST, StreamCell, stream_cells
from engram.report.svg import DASHES, INK, MARKERS, SERIES, TEXT_SIZE, new_figure, style_axes, to_svg

LENGTH = 128
BLOCKS = ((1, 1), (2, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 96), (97, 128))
"""positions of a stream, ends included; the last block is the last quarter"""
MIN_STREAMS = 30
"""a bin that fewer streams have is not drawn"""
BINNED = {
    "forgetting": ("by_gap", "tasks since the class was last met"),
    "encounters": ("by_encounters", "earlier tasks with the class"),
}
BETWEEN = "resnet12_wide"
"""encoder whose lines lie between those of the smallest and of the strongest, which are drawn"""
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
    """File name -> SVG for a page, whose colours it takes, from streams of `LENGTH` tasks; without any, no figures.

    A system whose per-task results cannot be read is not drawn. Where the strongest encoder has streams, encounters and
    gaps are those over it alone, and `BETWEEN` is left out: few lines say more.
    """
    cells = [c for c in stream_cells(records) if c.length == LENGTH and readable_tasks(c.evaluation, folder)]
    strong = [cell for cell in cells if cell.backbone == STRONGEST]
    cells = [cell for cell in cells if cell.backbone != BETWEEN] if strong else cells
    along = [position_line(cell, folder) for cell in cells]
    blind = [line for cell, line in zip(cells, along, strict=True) if not cell.reads_names]
    along += [replace(line, panel=("named", line.panel[1])) for line in blind if line.panel[0] == "anonymous"]
    cells = [cell for cell in strong or cells if cell.remembers]
    figures = {}
    for names in ("named", "anonymous"):
        if lines := [line for line in along if line.panel[0] == names]:
            title = f"Accuracy along {names} streams of {LENGTH} tasks"
            figures[f"memory_along_stream_{names}.svg"] = draw(lines, "task in the stream", title)
    for name, (key, x_label) in BINNED.items() if cells else ():
        lines = [line for cell in cells if (line := bin_line(cell, key)).bins]
        figures[f"{name}.svg"] = draw(lines, x_label, f"Accuracy by {x_label}, streams of {LENGTH} tasks")
    return figures


def position_line(cell: StreamCell, folder: Path) -> Line:
    """Means over blocks of positions, with intervals over streams."""
    by_task = correctness(cell.evaluation, folder).mean(-1)
    means = np.stack([by_task[:, first - 1 : last].mean(1) for first, last in BLOCKS])
    bins = [str(a) if a == b else f"{a}{TO}{b}" for a, b in BLOCKS]
    return _line(cell, bins, means.mean(1), np.array([interval(m) for m in means]))


def bin_line(cell: StreamCell, key: str) -> Line:
    table = cell.evaluation.metrics["stream"][key]
    enough = [n >= MIN_STREAMS for n in table["n"]]
    bins = [name.replace("-", TO) for name, keep in zip(table["bin"], enough, strict=True) if keep]
    return _line(cell, bins, *(np.array(table[k], float)[enough] for k in ("accuracy", "interval")))


def _line(cell: StreamCell, bins: Sequence[str], accuracy: np.ndarray, half_width: np.ndarray) -> Line:
    remembers = cell.remembers and not cell.erased
    return Line(cell.label, remembers, (cell.names, cell.backbone), bins, accuracy, half_width)


def draw(lines: Sequence[Line], x_label: str, title: str) -> str:
    """A panel for each kind of stream and encoder, in two where it has too many lines: with memory, and without.

    Streams of one kind share a scale.
    """
    bins = sorted({name for line in lines for name in line.bins}, key=lambda name: int(name.split(TO)[0].rstrip("+")))
    kinds = sorted({line.panel for line in lines}, key=lambda panel: (panel[0] != "named", panel[1]))
    groups = [group for kind in kinds for group in _groups([line for line in lines if line.panel == kind])]
    figure = new_figure(720, 20 + HEIGHT * len(groups))
    grid = figure.subplots(len(groups), 1, sharex=True, squeeze=False, gridspec_kw={"hspace": 0.06})[:, 0]
    first: dict[str, Axes] = {}
    for axes, (heading, group) in zip(grid, groups, strict=True):
        kind = group[0].panel[0]
        if kind in first:
            axes.sharey(first[kind])
        first.setdefault(kind, axes)
        style_axes(axes, x_label if axes is grid[-1] else "", "accuracy")
        axes.set_title(heading, loc="left", color=INK, fontsize=TEXT_SIZE, weight="bold")
        for line in group:
            draw_line(axes, line.label, np.array([bins.index(n) for n in line.bins]), line.accuracy, line.interval)
        axes.set_xticks(range(len(bins)), bins, fontsize=TEXT_SIZE - 2)
        in_percent(axes)
        axes.margins(x=0.04)
    for axes in grid:  # when the axes that are shared know their ends
        name_lines(axes, HEIGHT - 45)
    return to_svg(figure, f"{title}: {', '.join(dict.fromkeys(line.label for line in lines))}")


def _groups(lines: Sequence[Line]) -> list[tuple[str, Sequence[Line]]]:
    """Heading and lines of each panel of one kind of stream and encoder."""
    here = sorted(lines, key=lambda line: (not line.remembers, line.label))
    kind = ", ".join(here[0].panel)
    parts = [("with memory", [line for line in here if line.remembers])]
    parts.append(("without memory", [line for line in here if not line.remembers]))
    groups = [(f"{kind}: {words}", part) for words, some in parts for part in panels(some)]
    return groups if len(here) > MOST else [(kind, here)]


PICTURE = "accuracy_along_stream.svg"
"""of the README"""
CLOSEST = 0.055
"""least distance between two labels, in accuracy"""


class PictureLine(NamedTuple):
    study: str
    row: str
    column: str
    label: str


LEAK, MEMORY = "order_leak_mini", "memory_stream_named"
PICTURE_LINES = (
    PictureLine(LEAK, "trained and tested in class order", "all tasks", "class order: query order reveals the label"),
    PictureLine(LEAK, "trained and tested shuffled", "all tasks", "the paper's memory, queries shuffled"),
    PictureLine(MEMORY, "memory by content, conv4", "T = 8", "memory by content, queries shuffled"),
    PictureLine(LEAK, "the same weights, shuffled", "all tasks", "trained in class order, tested shuffled"),
    PictureLine(MEMORY, "memory by content, history erased, conv4", "T = 8", "memory by content, memory erased"),
)


def stream_picture(cells: Mapping[str, Mapping[tuple[str, str], Filled]]) -> dict[str, str]:
    """Accuracy along a stream in class order, shuffled, and with a memory by content: file name -> SVG.

    A line for each of `PICTURE_LINES` that is recorded; without any, nothing.
    """
    found = {line.label: cells.get(line.study, {}).get((line.row, line.column)) for line in PICTURE_LINES}
    lines = {label: cell.first[0].evaluation.metrics for label, cell in found.items() if cell and cell.answers}
    if not lines:
        return {}
    figure = new_figure(760, 330)
    figure.set_layout_engine("none")  # labels stand to the right of the axes
    axes = figure.add_axes((0.085, 0.15, 0.5, 0.81))
    style_axes(axes, "task in the stream", "accuracy")
    heights = spread([metrics["accuracy_by_position"][-1] for metrics in lines.values()], CLOSEST)
    for number, (label, metrics) in enumerate(lines.items()):
        accuracy, half = (np.array(metrics[f"{name}_by_position"]) for name in ("accuracy", "interval"))
        x = np.arange(1, len(accuracy) + 1)
        look = {"color": SERIES[number], "linestyle": DASHES[number], "marker": MARKERS[number]}
        band(axes, x, accuracy, half, 4.5, look)
        place = x[-1] + 0.2, heights[number]
        axes.text(*place, label, color=SERIES[number], va="center", fontsize=TEXT_SIZE, clip_on=False)
    axes.set_ylim(0.2, 1.02)
    in_percent(axes)
    return {PICTURE: to_svg(figure, f"Accuracy along streams of 8 tasks: {', '.join(lines)}")}
