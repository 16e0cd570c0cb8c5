"""Figures of studies: validation over training as lines and as boxes, accuracy by position, cost against accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from engram.ledger import Ledger, RunRecord
from engram.report.cells import CellMap, Filled
from engram.report.figures import PositionCurve, ReliabilityCurve
from engram.report.lines import in_percent, look_of, place_labels
from engram.report.svg import (
    DASHES,
    INK,
    MARKERS,
    SERIES,
    TEXT_SIZE,
    legend_above,
    legend_rows,
    new_figure,
    style_axes,
    to_svg,
)
from engram.studies.schema import Study

BOXES = 6
"""parts of training that get a box each"""
COST_SIZE, COST_AXES = (460, 340), (0.13, 0.15, 0.85, 0.82)
TICKS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


def training_runs(study: Study, cells: CellMap, ledger: Ledger, column: str) -> dict[str, list[RunRecord]]:
    """row -> its training runs of one column, a run for each seed, of the recipe that the cell shows."""
    found = {}
    for row in study.rows:
        cell = cells.get((row.label, column))
        if cell and cell.answers and cell.recipe:
            runs = [r for r in ledger.trainings(cell.recipe).values() if r.curves.get("validation_accuracy")]
            if runs:
                found[row.label] = runs
    return found


def training_lines(runs: Mapping[str, Sequence[RunRecord]], metric: str) -> list[PositionCurve]:
    """Mean over seeds with their range; iterations that not all seeds have validated are left out."""
    curves = []
    for label, records in runs.items():
        if not all(r.curves.get(metric) for r in records):
            continue
        shared = sorted(set.intersection(*(set(r.curves["iteration"]) for r in records)))
        if not shared:
            continue
        values = np.array([[r.curves[metric][r.curves["iteration"].index(i)] for i in shared] for r in records], float)
        middle, half = (values.max(0) + values.min(0)) / 2, (values.max(0) - values.min(0)) / 2
        seeds = f", {len(records)} seeds" if len(records) > 1 else ""
        curves.append(PositionCurve(f"{label}{seeds}", middle.tolist(), half.tolist(), shared))
    return curves


def box_plots(runs: Mapping[str, Sequence[RunRecord]], title: str) -> str:
    """Validation accuracy of all seeds in equal parts of training, a box for each system and part."""
    labels = list(runs)
    columns, rows = legend_rows(labels)
    figure = new_figure(430, 250 + 17 * rows)
    axes = figure.subplots()
    style_axes(axes, "thousands of iterations, up to", "validation accuracy")
    last = max(max(r.curves["iteration"]) for records in runs.values() for r in records)
    edges = np.linspace(0, last, BOXES + 1)
    width = 0.8 / len(labels)
    for number, label in enumerate(labels):
        points = np.concatenate(
            [np.stack([r.curves["iteration"], r.curves["validation_accuracy"]]) for r in runs[label]], 1
        )
        groups = [points[1][(points[0] > low) & (points[0] <= high)] for low, high in pairwise(edges)]
        places = np.arange(BOXES) + (number - (len(labels) - 1) / 2) * width
        colour, dashes = SERIES[look_of(label).colour], DASHES[look_of(label).dash]
        _boxes(axes, groups, places, width, colour, dashes)
        axes.plot([], [], linewidth=6, alpha=0.5, label=label, color=colour, linestyle=dashes)
    axes.set_xticks(range(BOXES), [f"{high / 1000:.3g}" for high in edges[1:]])
    in_percent(axes)
    legend_above(figure, columns)
    return to_svg(figure, f"{title}: boxes of validation accuracy over training, {', '.join(labels)}")


def _boxes(
    axes: Axes, groups: Sequence[np.ndarray], places: np.ndarray, width: float, colour: str, dashes: Any
) -> None:
    """Boxes of the groups that are not empty; the line inside is the median, whiskers reach the extremes."""
    kept = [(group, place) for group, place in zip(groups, places, strict=True) if len(group)]
    if not kept:
        return
    drawn = axes.boxplot(
        [group for group, _ in kept], positions=[place for _, place in kept], widths=width * 0.8, whis=(0, 100),
        patch_artist=True, manage_ticks=False, showfliers=False,
    )  # fmt: skip
    for box in drawn["boxes"]:
        box.set(facecolor=colour, alpha=0.45, edgecolor=colour, linestyle=dashes)
    for part in ("whiskers", "caps"):
        for line in drawn[part]:
            line.set(color=colour)
    for line in drawn["medians"]:
        line.set(color=INK, linewidth=1.6)


def position_curves(study: Study, cells: CellMap) -> list[PositionCurve]:
    """Accuracy by position of every row of a study of streams, of its first seed; one curve a row."""
    curves = []
    for row in study.rows:
        cell = next((cells[row.label, c.column] for c in row.cells if cells[row.label, c.column].answers), None)
        if cell:
            metrics = cell.first[0].evaluation.metrics
            if len(metrics["accuracy_by_position"]) > 1:
                curves.append(
                    PositionCurve(row.label, metrics["accuracy_by_position"], metrics["interval_by_position"])
                )
    return curves


def reliability_curves(cells: Sequence[Filled]) -> list[ReliabilityCurve]:
    """One for each recorded cell whose record keeps reliability bins."""
    curves = []
    for cell in cells:
        metrics = cell.first[0].evaluation.metrics
        if bins := metrics.get("reliability"):
            label = f"{cell.row}, {cell.cell.column}"
            curves.append(ReliabilityCurve(label, bins["confidence"], bins["accuracy"], bins["weight"], metrics["ece"]))
    return curves


@dataclass(frozen=True)
class CostPoint:
    label: str
    minutes: float
    accuracy: float
    interval: float
    marked: bool
    """measured in class order"""


def cost_points(cells: Sequence[Filled]) -> list[CostPoint]:
    points = []
    for cell in cells:
        seconds = cell.first[0].training.get("seconds")
        if seconds and cell.estimate:
            order = cell.protocol.get("slot_order") == "class-order"
            points.append(CostPoint(cell.row, seconds / 60, cell.estimate.mean, cell.estimate.interval, order))
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
