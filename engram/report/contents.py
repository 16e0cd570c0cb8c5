"""What a report shows, as plain values: no tensors, no models, so that a page can be built from anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engram.errors import EngramError
from engram.report.columns import Column

Array = NDArray[np.generic]


@dataclass(frozen=True)
class QuickstartRow:
    """One system answering one setting. Accuracy, interval and ECE are fractions of 1."""

    system: str
    setting: str
    """``5-way 1-shot``"""
    accuracy: float
    interval: float
    """half-width of the 95 % interval over independent sequences"""
    ece: float | None = None
    seconds: float | None = None
    """training time; None where nothing was trained"""
    note: str = ""


QUICKSTART_COLUMNS: tuple[Column[QuickstartRow], ...] = (
    Column("System", lambda row: row.system),
    Column("Accuracy, %", lambda row: f"{100 * row.accuracy:.1f} ± {100 * row.interval:.1f}", right=True),
    Column("ECE", lambda row: "" if row.ece is None else f"{row.ece:.3f}", right=True),
    Column("Training", lambda row: "none" if row.seconds is None else duration(row.seconds), right=True),
)


def duration(seconds: float) -> str:
    """``48 s``, ``2 min 5 s``"""
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"


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
        if len(self.support_labels) != supports or len(self.query_labels) != queries:
            raise EngramError(
                f"episode '{self.title}': {supports} support and {queries} query images but "
                f"{len(self.support_labels)} and {len(self.query_labels)} labels: give one label for each image"
            )
        if np.shape(self.probabilities) != (queries, ways):
            raise EngramError(
                f"episode '{self.title}': probabilities have shape {np.shape(self.probabilities)} but "
                f"{queries} queries and {ways} class names need ({queries}, {ways})"
            )
        nodes = supports + queries
        if self.edges is not None and (np.ndim(self.edges) != 3 or np.shape(self.edges)[1:] != (nodes, nodes)):
            raise EngramError(
                f"episode '{self.title}': edges have shape {np.shape(self.edges)} but "
                f"{supports} supports + {queries} queries need (layers, {nodes}, {nodes})"
            )


@dataclass(frozen=True)
class PositionCurve:
    """Accuracy at each position of a stream, with the half-width of its interval."""

    label: str
    accuracy: Sequence[float]
    interval: Sequence[float]


@dataclass(frozen=True)
class ReliabilityCurve:
    """Mean confidence and accuracy of each bin; None or NaN where a bin is empty. ``weight`` is a count or a share."""

    label: str
    confidence: Sequence[float | None]
    accuracy: Sequence[float | None]
    weight: Sequence[float | None]
    ece: float


@dataclass(frozen=True)
class ValidationCurve:
    """Validation accuracy over training."""

    label: str
    iteration: Sequence[float]
    accuracy: Sequence[float]
    interval: Sequence[float] = ()


@dataclass(frozen=True)
class QuickstartData:
    rows: Sequence[QuickstartRow]
    seconds_total: float
    device: str
    commit: str
    how_to_read: str
    episodes: Sequence[EpisodePicture] = field(default_factory=tuple)
    positions: Sequence[PositionCurve] = field(default_factory=tuple)
    reliability: Sequence[ReliabilityCurve] = field(default_factory=tuple)
    named: Sequence[PositionCurve] = field(default_factory=tuple)
    """along a stream whose classes keep their names"""


def class_letter(label: int) -> str:
    """A to Z, then numbers; ``?`` for an unlabelled image."""
    if label < 0:
        return "?"
    return chr(ord("A") + label) if label < 26 else str(label + 1)
