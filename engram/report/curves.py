"""How each system of a study was trained: validation accuracy over steps, and the published figure as a dashed line.

A small drawing for the page of each method; for the report the mean over seeds, and boxes of parts of training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from engram.card import method_cards
from engram.ledger import Ledger, RunRecord
from engram.report.cells import CellMap, Filled
from engram.report.figures import PositionCurve, band, in_percent, look_of, name_lines
from engram.report.svg import DASHES, INK, MARKERS, SERIES, TEXT_SIZE, new_figure, style_axes, to_svg
from engram.report.systems import VARIANTS
from engram.report.verdicts import like_paper
from engram.studies.schema import Study

SIZE = (520, 190)
HEIGHT = 140
"""of the axes, about, in pixels"""
MOST_POINTS, MOST_MARKED = 40, 16
"""of a curve, a longer one is thinned evenly; and of one whose points are marked"""
BOXES = 6
"""parts of training that get a box each"""


def validation(cell: Filled) -> np.ndarray:
    """(3, looks): iterations, validation accuracy and the half-width of its interval, of the first seed's training."""
    keys = ("iteration", "validation_accuracy", "validation_interval")
    values = np.array([cell.first[0].trainer.curves[key] for key in keys], float)
    values = values[:, np.isfinite(values).all(0)]
    kept = np.unique(np.linspace(0, values.shape[1] - 1, MOST_POINTS).round().astype(int))
    return values[:, kept] if values.shape[1] > MOST_POINTS else values


def system_curves(study: Study, cells: CellMap) -> dict[str, list[Filled]]:
    """Method -> each cell of it that has a published figure and a record of its training: the run that is judged, which
    may be of another recipe than the cell shows."""
    found: dict[str, list[Filled]] = {}
    for row, cell in study.cells():
        filled = like_paper(cells[row.label, cell.column])
        if not filled.answers or not cell.paper or row.label in VARIANTS or filled.recipe is None:
            continue
        curves = filled.first[0].trainer.curves
        if curves.get("validation_accuracy") and curves.get("validation_interval"):
            found.setdefault(filled.recipe.method, []).append(filled)
    return found


def curve_figures(found: Mapping[str, list[Filled]]) -> dict[str, str]:
    """File name -> SVG."""
    return {file_of_curve(method): draw_curves(cells) for method, cells in found.items()}


def file_of_curve(method: str) -> str:
    return f"curve_{method}.svg"


def draw_curves(cells: list[Filled]) -> str:
    """Lines of one system, each named at its end; what was published for it has its colour and is dashed."""
    figure = new_figure(*SIZE)
    axes = figure.subplots()
    style_axes(axes, "training step", "accuracy")
    rows = list(dict.fromkeys(cell.row for cell in cells))
    last = max(float(validation(cell)[0][-1]) for cell in cells)
    first_colour = look_of(rows[0].rstrip("†")).colour
    drawn: set[float] = set()
    for cell in cells:
        colour = SERIES[(first_colour + rows.index(cell.row)) % len(SERIES)]
        steps, accuracy, half = validation(cell)
        shots, paper = cell.cell.column, cell.cell.paper
        label = f"{cell.row}, {shots}" if len(rows) > 1 else f"{shots}, ours"
        marker = MARKERS[shots != cells[0].cell.column] if len(steps) <= MOST_MARKED else ""
        look = {"label": label, "color": colour, "linestyle": DASHES[0], "marker": marker}
        band(axes, steps, accuracy, half, 3.5, look)
        if paper not in drawn:
            drawn.add(paper)
            label, level = f"{shots}, published {paper:.2f}", [paper / 100, paper / 100]
            axes.plot([0, last], level, color=colour, linewidth=1.3, linestyle=DASHES[1], label=label)
    in_percent(axes)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    name_lines(axes, HEIGHT)
    return to_svg(figure, f"Validation accuracy over training: {', '.join(rows)}, and the published figures")


def curve_section(method: str, found: Mapping[str, list[Filled]], figures: str) -> str:
    """The drawing and what it shows; a sentence where no training is recorded. ``figures``: the way to the folder."""
    title = method_cards()[method].title
    if not (cells := found.get(method)):
        return f"No training of {title} for Table 1 is recorded with its validation."
    runs = ", ".join(dict.fromkeys(f"`{cell.first[0].trainer.recipe_name}`" for cell in cells))
    picture = f"![Validation accuracy of {title} over training]({figures}/{file_of_curve(method)})"
    told = "Accuracy on validation classes over training, with its 95 % interval"
    return f"{picture}\n\n{told}: {runs}. Dashed: the published figure, which is of test classes."


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
