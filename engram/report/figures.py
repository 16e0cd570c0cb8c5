"""Figures as SVG strings: accuracy along a stream or over training, and reliability.

A system looks the same in every one, at most `MOST` lines share a panel, each is named at its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from engram.card import method_cards
from engram.errors import EngramError
from engram.report.cells import CellMap, Filled
from engram.report.svg import DASHES, INK, SERIES, TEXT_SIZE, new_figure, style_axes, to_svg
from engram.studies.schema import Study

PANEL = 195
"""height of a panel's axes, about, in pixels"""
MOST = 6
"""lines in one panel; more go to a panel of their own"""
COLOURS = {"cml_bgnn": 0, "content_memory": 0, "egnn": 1, "proto_memory": 2, "knn_memory": 3, "proto_net": 5}
COLOURS["propagation_memory"] = 4
"""of the systems that are drawn together, by stem; any other has one by its name"""
VARIANTS = {
    "history erased": 2, "each task afresh": 2, "no history": 4, "by slot": 3, "by attention": 5, "by content": 0,
    "with memory": 0, "class order": 1, "the same weights": 5, "shuffled": 0, "-L-1": 2, "-L-2": 1, "-L-3": 0,
}  # fmt: skip
"""words of a label -> its dashes, the first that are found; a label with such words and no system is of CML-BGNN"""
MARKERS = {"transductive": "s", "resnet": "^"}
LABEL_HEIGHT = 15.0
"""of a line's label, in pixels"""
Item = TypeVar("Item")


@dataclass(frozen=True)
class Look:
    """Colour, dashes and marker: no reading hangs on colour alone."""

    colour: int
    dash: int
    marker: str

    @property
    def style(self) -> dict[str, Any]:
        """for matplotlib"""
        return {"color": SERIES[self.colour], "linestyle": DASHES[self.dash], "marker": self.marker}


def look_of(label: str) -> Look:
    """Of a line called ``CML-BGNN, memory by content, transductive``: the same wherever it is drawn."""
    known = {card.title.lower(): stem for stem, card in method_cards().items()}
    title = max((t for t in known if label.lower().startswith(t)), key=len, default="")
    words = next((w for w in VARIANTS if w in label), "")
    stem = known.get(title, "cml_bgnn" if words else label)
    colour = COLOURS.get(stem, crc32(stem.encode()) % len(SERIES))
    rest = label[len(title) :].replace(", transductive", "").strip("†") if title else ""
    dash = VARIANTS[words] if words else crc32(rest.encode()) % len(DASHES) if rest else 0
    return Look(colour, dash, next((m for w, m in MARKERS.items() if w in label), "o"))


def panels(items: Sequence[Item]) -> list[Sequence[Item]]:
    """In order, at most `MOST` in each."""
    return [items[start : start + MOST] for start in range(0, len(items), MOST)]


def draw_line(axes: Axes, label: str, x: np.ndarray, accuracy: np.ndarray, interval: np.ndarray) -> None:
    """A line with a band for its interval."""
    band(axes, x, accuracy, interval, 4.5 if len(x) <= 40 else 0, {"label": label, **look_of(label).style})


def band(
    axes: Axes, x: np.ndarray, accuracy: np.ndarray, interval: np.ndarray, size: float, look: Mapping[str, Any]
) -> None:
    """``size``: of its markers."""
    axes.fill_between(x, accuracy - interval, accuracy + interval, color=look["color"], alpha=0.16, linewidth=0)
    axes.plot(x, accuracy, linewidth=1.9, markersize=size, **look)


def in_percent(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")


def name_lines(axes: Axes, height: float) -> None:
    """Each line's label right of the axes at the height of its end, moved apart where two would meet.

    ``height``: of the axes, about, in pixels. A thin line leads from the end to its label.
    """
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    ends = [(np.asarray(line.get_xdata(), float)[-1], np.asarray(line.get_ydata(), float)[-1]) for line in lines]
    starts = [((x - left) / (right - left), (y - low) / (high - low)) for x, y in ends]
    places = spread([y for _, y in starts], LABEL_HEIGHT / height)
    for line, start, place in zip(lines, starts, places, strict=True):
        colour = line.get_color()
        axes.plot(
            [start[0], 1.03], [start[1], place], color=colour, linewidth=0.7, transform=axes.transAxes, clip_on=False
        )
        text = str(line.get_label())
        axes.text(1.04, place, text, color=colour, va="center", fontsize=TEXT_SIZE - 1, transform=axes.transAxes)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The places at least ``gap`` apart, in their order; where that would lead above 1, those below give way."""
    order = sorted(range(len(places)), key=lambda number: places[number])
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    ceiling = max([1.0, *places])
    for number in reversed(order):
        moved[number] = min(moved[number], ceiling)
        ceiling = moved[number] - gap
    return moved


@dataclass(frozen=True)
class PositionCurve:
    """Accuracy at each position of a stream, or over training, with the half-width of its interval."""

    label: str
    accuracy: Sequence[float]
    interval: Sequence[float]
    at: Sequence[float] = ()
    """iterations of training; () = positions 1, 2, ... of a stream"""

    @classmethod
    def of(cls, label: str, metrics: Mapping[str, Any]) -> PositionCurve:
        return cls(label, metrics["accuracy_by_position"], metrics["interval_by_position"])


@dataclass(frozen=True)
class ReliabilityCurve:
    """Mean confidence and accuracy of each bin; None or NaN where a bin is empty. ``weight`` is a count or a share."""

    label: str
    confidence: Sequence[float | None]
    accuracy: Sequence[float | None]
    weight: Sequence[float | None]
    ece: float

    @classmethod
    def of(cls, label: str, metrics: Mapping[str, Any]) -> ReliabilityCurve:
        return cls(label, ece=metrics["ece"], **metrics["reliability"])


def accuracy_by_position(curves: Sequence[PositionCurve]) -> str:
    """Accuracy of the first, second, ... task of a stream, a band for each 95 % interval."""
    return _curves(curves, "task in the stream", "accuracy", "Accuracy by position in the stream")


def validation_curves(curves: Sequence[PositionCurve], y_label: str = "validation accuracy") -> str:
    """Validation accuracy over training, of nodes or of edges."""
    return _curves(curves, "training iteration", y_label, f"{y_label.capitalize()} over training")


def _curves(curves: Sequence[PositionCurve], x_label: str, y_label: str, what: str) -> str:
    if not curves:
        raise EngramError(f"{what.lower()}: there is no curve to draw; give at least one")
    groups = panels(curves)
    figure = new_figure(620, 60 + 210 * len(groups))
    for axes, group in zip(figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0], groups, strict=True):
        style_axes(axes, x_label if group is groups[-1] else "", y_label)
        for curve in group:
            x = np.array(curve.at, float) if len(curve.at) else np.arange(1, len(curve.accuracy) + 1)
            accuracy, interval = np.asarray(curve.accuracy, float), np.asarray(curve.interval, float)
            if not len(x) == len(accuracy) == len(interval):
                raise EngramError(
                    f"{what.lower()}, '{curve.label}': {len(x)} positions, {len(accuracy)} accuracies and "
                    f"{len(interval)} intervals; they must be as many"
                )
            draw_line(axes, curve.label, x, accuracy, interval)
        in_percent(axes)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        axes.margins(x=0.03)
    for axes in figure.axes:  # when the axes that are shared know their ends
        name_lines(axes, PANEL)
    return to_svg(figure, f"{what}: {', '.join(c.label for c in curves)}")


def reliability_diagram(curve: ReliabilityCurve) -> str:
    """Accuracy against confidence, and below it how many answers had that confidence."""
    confidence, accuracy, weight = (
        np.array([np.nan if v is None else v for v in values], float)
        for values in (curve.confidence, curve.accuracy, curve.weight)
    )
    if not len(confidence) == len(accuracy) == len(weight) > 0:
        raise EngramError(
            f"reliability of '{curve.label}': {len(confidence)} confidences, {len(accuracy)} accuracies and "
            f"{len(weight)} weights; they must be as many and at least 1"
        )
    weight, width = np.nan_to_num(weight), 1 / len(weight)
    filled = (weight > 0) & np.isfinite(confidence) & np.isfinite(accuracy)
    share = weight / max(float(weight.sum()), 1e-12)
    figure = new_figure(290, 330)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
    style_axes(upper, "", "accuracy")
    style_axes(lower, "confidence", "answers")
    upper.plot([0, 1], [0, 1], color=INK, alpha=0.55, linewidth=1.0, linestyle=(0, (4, 3)))
    upper.vlines(confidence[filled], confidence[filled], accuracy[filled], color=SERIES[1], linewidth=2.2, alpha=0.8)
    upper.plot(confidence[filled], accuracy[filled], color=SERIES[0], linewidth=1.6, marker="o", markersize=4.5)
    upper.text(0.02, 0.98, f"ECE {curve.ece:.3f}", color=INK, va="top", weight="bold", fontsize=TEXT_SIZE)
    upper.set(xlim=(-0.02, 1.02), ylim=(-0.03, 1.03))
    lower.bar((np.arange(len(weight)) + 0.5) * width, share, width=width * 0.86, color=SERIES[0], alpha=0.75)
    lower.yaxis.set_major_locator(MaxNLocator(2))
    for axis in (upper.xaxis, upper.yaxis, lower.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, symbol=" %", decimals=0))
    figure.suptitle(curve.label, color=INK, fontsize=TEXT_SIZE)
    return to_svg(figure, f"Reliability of {curve.label}: expected calibration error {curve.ece:.3f}")


def position_curves(study: Study, cells: CellMap) -> list[PositionCurve]:
    """Accuracy by position of every row of a study of streams, of its first seed; one curve a row."""
    rows = {row.label: [cells[row.label, c.column] for c in row.cells] for row in study.rows}
    shown = {label: next((c for c in found if c.answers), None) for label, found in rows.items()}
    told = {label: cell.first[0].evaluation.metrics for label, cell in shown.items() if cell}
    return [PositionCurve.of(label, m) for label, m in told.items() if len(m["accuracy_by_position"]) > 1]


def reliability_curves(cells: Sequence[Filled]) -> list[ReliabilityCurve]:
    """One for each recorded cell whose record keeps reliability bins."""
    found = [(f"{c.row}, {c.cell.column}", c.first[0].evaluation.metrics) for c in cells]
    return [ReliabilityCurve.of(label, metrics) for label, metrics in found if metrics.get("reliability")]
