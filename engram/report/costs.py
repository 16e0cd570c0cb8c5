"""What each system's run cost: a table, with what its audit found, and a figure of accuracy over minutes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from engram.ledger import Ledger, RunRecord
from engram.protocol import describe_protocol
from engram.recipes import Recipe
from engram.report.audits import verdict_text
from engram.report.cells import CellMap, Filled
from engram.report.figures import in_percent
from engram.report.svg import INK, MARKERS, SERIES, TEXT_SIZE, new_figure, style_axes, to_svg
from engram.report.table import Column, Table
from engram.studies.schema import Study

COST_NOTE = (
    "Milliseconds per iteration: of a step alone on the device (`benchmarks/train_step.py`); with ~, of the run itself "
    "without validation, possibly on a shared device. Audit: the newest one of the recipe, else of the recipe named "
    "there."
)
REGIME = {
    "history": None, "transductive": True, "statistics": "running", "query_statistics": "with_support",
    "batch_norm": "running", "vote": "labelled",
}  # fmt: skip
"""settings that decide what an audit finds, with what holds where a recipe is silent"""


@dataclass(frozen=True)
class CostLine:
    """What one recorded cell cost, and its audit."""

    cell: Filled
    ledger: Ledger
    steps: Mapping[tuple[str, str], float]

    @property
    def costs(self) -> tuple[str, str]:
        trainer = self.cell.first[-1].trainer
        return cost_texts(trainer.training, self.steps.get((trainer.recipe_digest, trainer.device)), trainer.device)

    @property
    def audit(self) -> str:
        """What an audit found, and of which recipe where it is another: ``4 leaks``, ``clean, declared: company``."""
        recipe = self.cell.recipe
        if recipe is None or not (audit := self.cell.audit or alike_audit(recipe, self.ledger)):
            return ""
        own = audit.recipe_today == recipe.name
        return verdict_text(audit) + ("" if own else f" (`{audit.recipe_name}`)")


COST_COLUMNS: tuple[Column[CostLine], ...] = (
    Column("System", lambda line: line.cell.row),
    Column("Protocol", lambda line: describe_protocol(line.cell.protocol, True)),
    Column("ms per iteration", lambda line: line.costs[0], right=True),
    Column("Minutes trained", lambda line: line.costs[1], right=True),
    Column("Audit", attrgetter("audit")),
)


def costs_table(study: Study, cells: CellMap, ledger: Ledger, steps: Mapping[tuple[str, str], float]) -> str:
    """A line for each recorded cell. ``steps``: milliseconds measured alone, by digest of the recipe and device."""
    recorded = [cells[row.label, cell.column] for row, cell in study.cells() if cells[row.label, cell.column].answers]
    return Table(COST_COLUMNS, [CostLine(cell, ledger, steps) for cell in recorded], note=COST_NOTE).markdown()


def cost_texts(training: Mapping[str, float], alone: float | None, device: str) -> tuple[str, str]:
    """Milliseconds per iteration, marked where they are a CPU's, and minutes; empty where a run has no such thing."""
    iterations, seconds = training.get("iterations"), training.get("seconds")
    if not iterations or seconds is None:
        return "", ""
    step = 1000 * (seconds - training.get("validation_seconds", 0.0)) / iterations
    milliseconds = f"~{step:.1f}" if alone is None else f"{alone:.1f}"
    return milliseconds + (" (cpu)" if device.startswith("cpu") else ""), f"{seconds / 60:.1f}"


def alike_audit(recipe: Recipe, ledger: Ledger) -> RunRecord | None:
    """The newest audit of the same method in the same `REGIME`, trained in the same slot order."""

    def kind(settings: Mapping[str, object], order: object) -> tuple[object, ...]:
        return order, *(settings.get(key, default) for key, default in REGIME.items())

    own = kind(recipe.method_settings, recipe.data.slot_order)
    audits = [r for r in ledger.records if (r.kind, r.status, r.method) == ("audit", "finished", recipe.method)]
    alike = [r for r in audits if kind(r.recipe["method_settings"], r.recipe["data"]["slot_order"]) == own]
    return alike[-1] if alike else None


COST_SIZE, COST_AXES = (460, 340), (0.13, 0.15, 0.85, 0.82)
TICKS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
POINT = 5.0
"""half the side of the square a point takes, in pixels"""


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
            points.append(CostPoint(cell.row, seconds / 60, found.mean, found.interval, cell.in_class_order))
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


def place_labels(points: np.ndarray, sizes: Sequence[tuple[float, float]]) -> np.ndarray:
    """Centre of each label, near its point: the nearest place that covers no point and no label; else the farthest.

    Shapes: points (n, 2) and sizes (width, height) in pixels -> (n, 2)
    """
    taken = [(x, y, 2 * POINT, 2 * POINT) for x, y in points]
    """centre, width and height"""
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        for dx, dy in _places(width, height):
            free = all(
                2 * abs(x + dx - left) >= width + wide or 2 * abs(y + dy - low) >= height + high
                for left, low, wide, high in taken
            )
            if free:
                break
        taken.append((x + dx, y + dy, width, height))
    return np.array([box[:2] for box in taken[len(points) :]], float).reshape(-1, 2)


def _places(width: float, height: float) -> Iterator[tuple[float, float]]:
    """Offsets around a point, nearest first; right and left before above and below."""
    for gap in range(1, 42, 4):
        reach_x, reach_y = POINT + gap + width / 2, POINT + gap + height / 2
        for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
            yield x * reach_x, y * reach_y
