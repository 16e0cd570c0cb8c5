"""Lines of figures: a system looks the same in every one, at most `MOST` share a panel, each is named at its end.

Small labels beside points cover no point and no other label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
from matplotlib.axes import Axes

from engram.card import method_cards
from engram.report.svg import DASHES, SERIES, TEXT_SIZE

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
LABEL_HEIGHT, POINT = 15.0, 5.0
"""of a line's label, and half the side of the square a point takes, in pixels"""
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
