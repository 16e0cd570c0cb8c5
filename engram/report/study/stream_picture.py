"""The picture of the README: accuracy along a stream in class order, shuffled, and with a memory by content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engram.report.stream_figures import standalone
from engram.report.study.cells import Filled
from engram.report.svg import DASHES, MARKERS, SERIES, TEXT_SIZE, new_figure, style_axes, to_svg

NAME = "accuracy_along_stream.svg"
SIZE, AXES = (760, 330), (0.085, 0.15, 0.5, 0.81)
CLOSEST = 0.055
"""least distance between two labels, in accuracy"""


class Curve(NamedTuple):
    study: str
    row: str
    column: str
    label: str


LEAK, MEMORY = "order_leak_mini", "memory_stream_named"
CURVES = (
    Curve(LEAK, "trained and tested in class order", "all tasks", "class order: query order reveals the label"),
    Curve(LEAK, "trained and tested shuffled", "all tasks", "the paper's memory, queries shuffled"),
    Curve(MEMORY, "memory by content, conv4", "T = 8", "memory by content, queries shuffled"),
    Curve(LEAK, "the same weights, shuffled", "all tasks", "trained in class order, tested shuffled"),
    Curve(MEMORY, "memory by content, history erased, conv4", "T = 8", "memory by content, memory erased"),
)


def stream_picture(cells: Mapping[str, Mapping[tuple[str, str], Filled]]) -> dict[str, str]:
    """File name -> SVG with colours of its own, a line for each of `CURVES` that is recorded; without any, nothing."""
    found = {curve: cells.get(curve.study, {}).get((curve.row, curve.column)) for curve in CURVES}
    lines = {c.label: cell.first[0].evaluation.metrics for c, cell in found.items() if cell and cell.answers}
    if not lines:
        return {}
    figure = new_figure(*SIZE)
    figure.set_layout_engine("none")  # labels stand to the right of the axes
    axes = figure.add_axes(AXES)
    style_axes(axes, "task in the stream", "accuracy")
    heights = spread({label: metrics["accuracy_by_position"][-1] for label, metrics in lines.items()})
    for number, (label, metrics) in enumerate(lines.items()):
        accuracy, interval = metrics["accuracy_by_position"], metrics["interval_by_position"]
        x = range(1, len(accuracy) + 1)
        look: dict[str, Any] = {"linestyle": DASHES[number], "marker": MARKERS[number]}
        low, high = (([a + sign * i for a, i in zip(accuracy, interval, strict=True)]) for sign in (-1, 1))
        axes.fill_between(x, low, high, color=SERIES[number], alpha=0.16, linewidth=0)
        axes.plot(x, accuracy, color=SERIES[number], linewidth=1.9, markersize=4.5, **look)
        place = x[-1] + 0.2, heights[label]
        axes.text(*place, label, color=SERIES[number], va="center", fontsize=TEXT_SIZE, clip_on=False)
    axes.set_ylim(0.2, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    return {NAME: standalone(to_svg(figure, f"Accuracy along streams of 8 tasks: {', '.join(lines)}"))}


def spread(ends: Mapping[str, float]) -> dict[str, float]:
    """Heights of labels in the order of the line ends, each at least `CLOSEST` above the one before."""
    heights: dict[str, float] = {}
    lowest = -1.0
    for label, end in sorted(ends.items(), key=lambda item: item[1]):
        heights[label] = lowest = max(end, lowest + CLOSEST)
    return heights
