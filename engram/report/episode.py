"""An episode in pictures: which class each query was given, and what the graph saw in each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from numpy.typing import NDArray

from engram.errors import EngramError
from engram.report.svg import IMAGE_BLUE, INK, SERIES, new_figure, to_svg

Array = NDArray[np.generic]
MOST_SHOTS = 5
EDGE_COLOURS = ListedColormap([(*IMAGE_BLUE, a) for a in np.linspace(0, 1, 256)])
"""transparent to blue: no edge looks like the page, whatever its colour"""


@dataclass(frozen=True)
class EpisodePicture:
    """One task with a model's answer. Supports and queries may come in any order."""

    images_support: Array
    """(S, H, W) or (S, H, W, 3) uint8"""
    support_labels: Array
    """(S,) in [0, N), -1 for an unlabelled support"""
    images_query: Array
    query_labels: Array
    edges: Array | None
    """(L, V, V) adjacency of each layer, supports first; None for a method without a graph"""
    probabilities: Array
    """(Q, N)"""
    class_names: Sequence[str]
    title: str

    def __post_init__(self) -> None:
        supports, queries, ways = len(self.images_support), len(self.images_query), len(self.class_names)
        labels, edges, nodes = (len(self.support_labels), len(self.query_labels)), self.edges, supports + queries
        wrong = ""
        if labels != (supports, queries):
            wrong = f"{supports} support and {queries} query images but {labels[0]} and {labels[1]} labels: give one "
            wrong += "label for each image"
        elif np.shape(self.probabilities) != (queries, ways):
            wrong = f"probabilities have shape {np.shape(self.probabilities)} but {queries} queries and {ways} class "
            wrong += f"names need ({queries}, {ways})"
        elif edges is not None and (np.ndim(edges) != 3 or np.shape(edges)[1:] != (nodes, nodes)):
            wrong = f"edges have shape {np.shape(edges)} but {supports} supports + {queries} queries need (layers, "
            wrong += f"{nodes}, {nodes})"
        if wrong:
            raise EngramError(f"episode '{self.title}': {wrong}")


def class_letter(label: int) -> str:
    """A to Z, then numbers; ``?`` for an unlabelled image."""
    if label < 0:
        return "?"
    return chr(ord("A") + label) if label < 26 else str(label + 1)


def shown_queries(picture: EpisodePicture, most: int) -> np.ndarray:
    """Queries by true class; where there are too many, evenly picked ones."""
    order = np.argsort(picture.query_labels, kind="stable")
    return order if len(order) <= most else order[np.linspace(0, len(order) - 1, most).round().astype(int)]


def episode_matrix(picture: EpisodePicture) -> str:
    """Supports along the top, queries down the side, a bar for the probability of each pair.

    The bar of the true class is blue and its cell is framed; a wrong winner is orange; the rest is grey.
    """
    labels = np.asarray(picture.support_labels)
    n_way = len(picture.class_names)
    by_class = [np.flatnonzero(labels == c)[:MOST_SHOTS] for c in range(n_way)]
    head = max(1, *(len(rows) for rows in by_class))
    cell = float(np.clip(350 / (n_way + 1.15), 16, 46))
    queries = shown_queries(picture, max(n_way, int(430 / cell)))
    width, height = cell * (n_way + 1.15) + 44, cell * (head + len(queries) + 0.35) + 18
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, width / cell), ylim=(height / cell, 0))
    axes.axis("off")
    for c, rows in enumerate(by_class):
        axes.text(c + 1.65, 13 / cell, class_letter(c), color=INK, ha="center", fontsize=min(12, cell * 0.62))
        for k, row in enumerate(rows):
            _thumbnail(axes, picture.images_support[row], c + 1.15, 18 / cell + head - len(rows) + k)
    top = 18 / cell + head + 0.25
    _tracks(axes, n_way, len(queries), top)
    for place, query in enumerate(queries):
        _thumbnail(axes, picture.images_query[query], 0.0, top + place)
        _answer(axes, picture.probabilities[query], int(picture.query_labels[query]), top + place, cell)
    right = float(np.mean(picture.probabilities.argmax(1) == picture.query_labels))
    return to_svg(figure, f"{picture.title}: probabilities of {len(queries)} queries, {right:.0%} answered right")


def _thumbnail(axes: Axes, image: np.ndarray, x: float, y: float) -> None:
    place = x + 0.04, x + 0.96, y + 0.96, y + 0.04
    axes.imshow(image, extent=place, cmap="gray", vmin=0, vmax=255, interpolation="none", aspect="auto")
    axes.add_patch(Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, fill=False, edgecolor=INK, alpha=0.35, linewidth=0.7))


def _tracks(axes: Axes, columns: int, rows: int, top: float) -> None:
    """The faint cells behind the bars, as one path: a path for each would double the size of a 20-way drawing."""
    places = [(c + 1.23, top + r + 0.08) for c in range(columns) for r in range(rows)]
    cells = [Path.unit_rectangle().transformed(Affine2D().scale(0.84).translate(x, y)) for x, y in places]
    axes.add_patch(PathPatch(Path.make_compound_path(*cells), facecolor=INK, alpha=0.07, linewidth=0))


def _answer(axes: Axes, probabilities: np.ndarray, truth: int, y: float, cell: float) -> None:
    """One row of bars, and the probability of the true class in words at its end."""
    winner = int(np.argmax(probabilities))
    for c, p in enumerate(probabilities):
        x, height = c + 1.15, float(p) * 0.84
        colour, alpha = (SERIES[0], 0.95) if c == truth else (SERIES[1], 0.95) if c == winner else (INK, 0.45)
        bar = Rectangle((x + 0.08, y + 0.92 - height), 0.84, height, facecolor=colour, alpha=alpha, linewidth=0)
        if height > 0.005:
            axes.add_patch(bar)
        if c == truth:
            axes.add_patch(Rectangle((x + 0.05, y + 0.05), 0.9, 0.9, fill=False, edgecolor=INK, linewidth=1.1))
    colour, size = (SERIES[0] if winner == truth else SERIES[1]), min(12.0, max(9.5, cell * 0.5))
    x = len(probabilities) + 1.15 + 42 / cell
    words = f"{100 * probabilities[truth]:.0f} %"
    axes.text(x, y + 0.5, words, color=colour, va="center", ha="right", fontsize=size)


def adjacency_maps(picture: EpisodePicture) -> list[str]:
    """One heat map for each layer: rows and columns are supports, then queries, both by class."""
    if picture.edges is None:
        return []
    supports, queries = np.asarray(picture.support_labels), np.asarray(picture.query_labels)
    order = np.concatenate([np.argsort(supports, kind="stable"), len(supports) + np.argsort(queries, kind="stable")])
    labels = np.concatenate([supports, queries])[order]
    return [
        _adjacency_map(layer[np.ix_(order, order)], labels, len(supports), f"layer {number}", picture.title)
        for number, layer in enumerate(np.asarray(picture.edges, float), start=1)
    ]


def _adjacency_map(edges: np.ndarray, labels: np.ndarray, n_support: int, name: str, title: str) -> str:
    strongest = float(np.nanmax(edges)) or 1.0
    figure = new_figure(168, 190)
    axes = figure.subplots()
    axes.imshow(edges, cmap=EDGE_COLOURS, vmin=0, vmax=strongest, interpolation="none")
    places, letters = _class_ticks(labels, n_support)
    axes.set_xticks(places, letters, color=INK, fontsize=8.5)
    axes.set_yticks(places, letters, color=INK, fontsize=8.5)
    axes.tick_params(length=0, pad=3)
    for spine in axes.spines.values():
        spine.set_color(INK)
        spine.set_alpha(0.4)
    for line in (axes.axhline, axes.axvline):
        line(n_support - 0.5, color=INK, linewidth=1.0, alpha=0.8)
    middles = ((n_support - 1) / 2, (n_support + len(labels) - 1) / 2)
    side = axes.secondary_xaxis("top")
    side.set_xticks(middles, ("supports", "queries"), color=INK, fontsize=9)
    side.tick_params(length=0, pad=1)
    side.spines["top"].set_visible(False)
    axes.set_xlabel(f"{name}: full colour = {strongest:.2g}", color=INK, fontsize=9.5)
    return to_svg(figure, f"{title}, {name}: adjacency of {len(labels)} images, strongest edge {strongest:.2g}")


def _class_ticks(labels: np.ndarray, n_support: int) -> tuple[list[float], list[str]]:
    """A letter for each image, or, where those would not fit, for each block of one class."""
    if len(labels) <= 12:
        return [float(i) for i in range(len(labels))], [class_letter(int(c)) for c in labels]
    blocks: dict[tuple[bool, int], list[int]] = {}
    for place, label in enumerate(labels):
        blocks.setdefault((place >= n_support, int(label)), []).append(place)
    every = -(-len(blocks) // 12)
    kept = [(label, rows) for (_, label), rows in blocks.items() if label % every == 0 or label < 0]
    return [float(np.mean(rows)) for _, rows in kept], [class_letter(label) for label, _ in kept]
