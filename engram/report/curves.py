"""How each system of a study was trained: validation accuracy over steps, and the published figure as a dashed line.

A small drawing for the page of each method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from engram.card import method_cards
from engram.ledger import RunRecord
from engram.report.cells import CellMap, Filled
from engram.report.lines import band, in_percent, look_of, name_lines
from engram.report.svg import DASHES, MARKERS, SERIES, new_figure, style_axes, to_svg
from engram.report.systems import VARIANTS
from engram.studies.schema import Study

SIZE = (520, 190)
HEIGHT = 140
"""of the axes, about, in pixels"""
MOST_POINTS, MOST_MARKED = 40, 16
"""of a curve, a longer one is thinned evenly; and of one whose points are marked"""


@dataclass(frozen=True)
class Curve:
    """One recorded cell: how its model was validated while it was trained."""

    row: str
    cell: Filled
    run: RunRecord

    @property
    def looks(self) -> np.ndarray:
        """(3, looks): iterations, accuracy and the half-width of its interval."""
        keys = ("iteration", "validation_accuracy", "validation_interval")
        values = np.array([self.run.curves[key] for key in keys], float)
        values = values[:, np.isfinite(values).all(0)]
        kept = np.unique(np.linspace(0, values.shape[1] - 1, MOST_POINTS).round().astype(int))
        return values[:, kept] if values.shape[1] > MOST_POINTS else values


def system_curves(study: Study, cells: CellMap) -> dict[str, list[Curve]]:
    """Method -> a curve for each row and column of it that has a published figure and a record of its training."""
    found: dict[str, list[Curve]] = {}
    for row, cell in study.cells():
        filled = cells[row.label, cell.column]
        if not filled.answers or not cell.paper or row.label in VARIANTS or filled.recipe is None:
            continue
        run = filled.first[0].trainer
        if run.curves.get("validation_accuracy") and run.curves.get("validation_interval"):
            found.setdefault(filled.recipe.method, []).append(Curve(row.label, filled, run))
    return found


def curve_figures(found: Mapping[str, list[Curve]]) -> dict[str, str]:
    """File name -> SVG."""
    return {file_of_curve(method): draw_curves(curves) for method, curves in found.items()}


def file_of_curve(method: str) -> str:
    return f"curve_{method}.svg"


def draw_curves(curves: list[Curve]) -> str:
    """Lines of one system, each named at its end; what was published for it has its colour and is dashed."""
    figure = new_figure(*SIZE)
    axes = figure.subplots()
    style_axes(axes, "training step", "accuracy")
    rows = list(dict.fromkeys(curve.row for curve in curves))
    drawn: set[float] = set()
    for curve in curves:
        look = _look(rows.index(curve.row), curves[0].row)
        steps, accuracy, half = curve.looks
        shots = curve.cell.cell.column
        label = f"{curve.row}, {shots}" if len(rows) > 1 else f"{shots}, ours"
        marker = MARKERS[shots != curves[0].cell.cell.column] if len(steps) <= MOST_MARKED else ""
        band(
            axes, steps, accuracy, half, 3.5, {"label": label, "color": look, "linestyle": DASHES[0], "marker": marker}
        )
        if (paper := curve.cell.cell.paper) not in drawn:
            drawn.add(paper)
            _published(axes, f"{shots}, published {paper:.2f}", paper / 100, max(map(_last, curves)), look)
    in_percent(axes)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    name_lines(axes, HEIGHT)
    return to_svg(figure, f"Validation accuracy over training: {', '.join(rows)}, and the published figures")


def _look(number: int, first: str) -> str:
    """The system's colour, and for a second row of it the next one."""
    return SERIES[(look_of(first.rstrip("†")).colour + number) % len(SERIES)]


def _last(curve: Curve) -> float:
    return float(curve.looks[0][-1])


def _published(axes: Axes, label: str, accuracy: float, last: float, colour: str) -> None:
    axes.plot([0, last], [accuracy, accuracy], color=colour, linewidth=1.3, linestyle=DASHES[1], label=label)


def curve_section(method: str, found: Mapping[str, list[Curve]], figures: str) -> str:
    """The drawing and what it shows; a sentence where no training is recorded. ``figures``: the way to the folder."""
    title = method_cards()[method].title
    if not (curves := found.get(method)):
        return f"No training of {title} for Table 1 is recorded with its validation."
    runs = ", ".join(dict.fromkeys(f"`{curve.run.recipe_name}`" for curve in curves))
    picture = f"![Validation accuracy of {title} over training]({figures}/{file_of_curve(method)})"
    told = "Accuracy on validation classes over training, with its 95 % interval"
    return f"{picture}\n\n{told}: {runs}. Dashed: the published figure, which is of test classes."
