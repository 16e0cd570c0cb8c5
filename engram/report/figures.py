"""Figures as SVG strings: accuracy along a stream, validation over training as lines and boxes, reliability, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from engram.errors import EngramError
from engram.ledger import Ledger, RunRecord
from engram.report.cells import CellMap, Filled
from engram.report.lines import draw_line, in_percent, look_of, name_lines, panels, place_labels
from engram.report.svg import INK, MARKERS, SERIES, TEXT_SIZE, new_figure, style_axes, to_svg
from engram.studies.schema import Study

PANEL = 195
"""height of a panel's axes, about, in pixels"""
BOXES = 6
"""parts of training that get a box each"""
COST_SIZE, COST_AXES = (460, 340), (0.13, 0.15, 0.85, 0.82)
TICKS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


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


def training_runs(study: Study, cells: CellMap, ledger: Ledger, column: str) -> dict[str, list[RunRecord]]:
    """row -> its training runs of one column, a run for each seed, of the recipe that the cell shows."""
    shown = {row.label: cells.get((row.label, column)) for row in study.rows}
    found = {label: ledger.trainings(c.recipe).values() for label, c in shown.items() if c and c.answers and c.recipe}
    validated = {label: [r for r in runs if r.curves.get("validation_accuracy")] for label, runs in found.items()}
    return {label: runs for label, runs in validated.items() if runs}


def training_lines(runs: Mapping[str, Sequence[RunRecord]], metric: str) -> list[PositionCurve]:
    """Mean over seeds with their range; iterations that not all seeds have validated are left out."""
    curves = []
    for label, records in runs.items():
        looks = [dict(zip(r.curves["iteration"], r.curves.get(metric) or (), strict=False)) for r in records]
        if shared := sorted(set.intersection(*map(set, looks))):
            values = np.array([[look[i] for i in shared] for look in looks], float)
            middle, half = (values.max(0) + values.min(0)) / 2, (values.max(0) - values.min(0)) / 2
            seeds = f", {len(records)} seeds" if len(records) > 1 else ""
            curves.append(PositionCurve(f"{label}{seeds}", middle.tolist(), half.tolist(), shared))
    return curves


def box_plots(runs: Mapping[str, Sequence[RunRecord]], title: str) -> str:
    """Validation accuracy of all seeds in equal parts of training, a box for each system and part."""
    labels = list(runs)
    columns = 2 if len(labels) > 1 and max(map(len, labels)) <= 24 else 1
    figure = new_figure(430, 250 + 17 * -(-len(labels) // columns))
    axes = figure.subplots()
    style_axes(axes, "thousands of iterations, up to", "validation accuracy")
    edges = np.linspace(0, max(max(r.curves["iteration"]) for records in runs.values() for r in records), BOXES + 1)
    width = 0.8 / len(labels)
    for number, (label, records) in enumerate(runs.items()):
        looks = [np.stack([r.curves["iteration"], r.curves["validation_accuracy"]]) for r in records]
        iterations, accuracy = np.concatenate(looks, 1)
        groups = [accuracy[(iterations > low) & (iterations <= high)] for low, high in pairwise(edges)]
        places = np.arange(BOXES) + (number - (len(labels) - 1) / 2) * width
        look = {key: value for key, value in look_of(label).style.items() if key != "marker"}
        _boxes(axes, groups, places, width, look)
        axes.plot([], [], linewidth=6, alpha=0.5, label=label, **look)
    axes.set_xticks(range(BOXES), [f"{high / 1000:.3g}" for high in edges[1:]])
    in_percent(axes)
    legend: dict[str, Any] = {"frameon": False, "labelcolor": INK, "fontsize": TEXT_SIZE, "borderaxespad": 0.1}
    figure.legend(loc="outside upper left", ncols=columns, handlelength=2.6, **legend)
    return to_svg(figure, f"{title}: boxes of validation accuracy over training, {', '.join(labels)}")


def _boxes(axes: Axes, groups: Sequence[np.ndarray], places: np.ndarray, width: float, look: Mapping[str, Any]) -> None:
    """Boxes of the groups that are not empty; the line inside is the median, whiskers reach the extremes."""
    kept = [(group, place) for group, place in zip(groups, places, strict=True) if len(group)]
    if not kept:
        return
    drawn = axes.boxplot(
        [group for group, _ in kept], positions=[place for _, place in kept], widths=width * 0.8, whis=(0, 100),
        patch_artist=True, manage_ticks=False, showfliers=False,
    )  # fmt: skip
    for box in drawn["boxes"]:
        box.set(facecolor=look["color"], alpha=0.45, edgecolor=look["color"], linestyle=look["linestyle"])
    for line in (*drawn["whiskers"], *drawn["caps"]):
        line.set(color=look["color"])
    for line in drawn["medians"]:
        line.set(color=INK, linewidth=1.6)


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


class CostPoint(NamedTuple):
    label: str
    minutes: float
    accuracy: float
    interval: float
    marked: bool
    """measured in class order"""


def cost_points(cells: Sequence[Filled]) -> list[CostPoint]:
    points = []
    for cell in cells:
        if (seconds := cell.first[0].training.get("seconds")) and (found := cell.estimate):
            order = cell.protocol.get("slot_order") == "class-order"
            points.append(CostPoint(cell.row, seconds / 60, found.mean, found.interval, order))
    return sorted(points, key=lambda p: (p.minutes, p.accuracy))


def cost_figure(points: Sequence[CostPoint]) -> str:
    """Accuracy against minutes of training; numbers stand at the points, the key below tells whose they are."""
    figure = new_figure(*COST_SIZE)
    figure.set_layout_engine("none")  # the place of the axes is needed to place the numbers
    axes = figure.add_axes(COST_AXES)
    style_axes(axes, "minutes of training", "accuracy")
    axes.set_xscale("log")
    for point in points:
        look = (SERIES[1], MARKERS[1]) if point.marked else (SERIES[0], MARKERS[0])
        axes.errorbar(point.minutes, point.accuracy, point.interval, color=look[0], marker=look[1], markersize=5)
    low, high = min(p.minutes for p in points) / 1.6, max(p.minutes for p in points) * 1.6
    axes.set_xlim(low, high)
    ticks = [t for t in TICKS if low <= t <= high] or [round(high, 1)]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.margins(y=0.14)
    in_percent(axes)
    _number(axes, points)
    return to_svg(figure, f"Cost against accuracy: {', '.join(p.label for p in points)}")


def _number(axes: Axes, points: Sequence[CostPoint]) -> None:
    """Numbers beside the points, with a thin line where one had to stand apart."""
    places = axes.transData.transform([(p.minutes, p.accuracy) for p in points])
    sizes = [(7.5 * len(str(n)) + 1, 10.0) for n in range(1, len(points) + 1)]
    centres = place_labels(places, sizes)
    back = axes.transData.inverted()
    for number, (place, centre) in enumerate(zip(places, centres, strict=True), 1):
        x, y = back.transform(centre)
        axes.text(x, y, str(number), color=INK, ha="center", va="center", fontsize=TEXT_SIZE - 2)
        if np.abs(centre - place).max() > 18:
            line = back.transform([place, place + 0.75 * (centre - place)])
            axes.plot(line[:, 0], line[:, 1], color=INK, alpha=0.4, linewidth=0.7)
