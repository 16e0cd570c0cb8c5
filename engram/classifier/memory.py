"""What a classifier remembers: labelled pictures as its engine sees them, with their classes and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engram.classifier import index as indices
from engram.classifier.index import Index, Rows
from engram.errors import EngramError, nearest
from engram.nn.view import View, fit_view

MOST_EXACT = 10_000
"""that an engine looks at all at once: a graph grows with their square, and of these it takes some gigabytes"""


class Stored(NamedTuple):
    """How a memory and a store on disk belong together."""

    folder: Path
    rows: int
    """of the store, that the memory has seen"""
    first: bool
    """whether they are its first entries: nothing was forgotten since"""


@dataclass(frozen=True)
class Memory:
    """S pictures in the order they came, task by task; classes keep their numbers as long as they are remembered."""

    classes: tuple[Any, ...]
    items: Tensor | Rows
    """(S, ...) features, or pictures where the engine asks for them; `Rows` above `MOST_EXACT`"""
    labels: Tensor
    """(S,) number of the class"""
    tasks: Tensor
    """(S,) number of the task, from 0 on"""
    digests: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """(S,) of the content of each picture; 0 where it is not known"""
    stored: Stored | None = None
    indexed: Index | None = None
    """of the first entries: those that were there when it was made"""

    def __post_init__(self) -> None:
        if not len(self.digests):
            object.__setattr__(self, "digests", torch.zeros(len(self.labels), dtype=torch.int64))

    @property
    def counts(self) -> Tensor:
        """(N,) pictures of each class."""
        return torch.bincount(self.labels, minlength=len(self.classes))

    @property
    def next_task(self) -> int:
        return int(self.tasks[-1]) + 1 if len(self.tasks) else 0

    @property
    def rows(self) -> Rows:
        """``items``, to be read in parts."""
        return self.items if isinstance(self.items, Rows) else Rows((self.items,))

    @property
    def exact(self) -> bool:
        """Whether an engine can look at all entries at once."""
        return len(self.labels) <= MOST_EXACT

    @cached_property
    def index(self) -> Index:
        """Of all entries, or of all but the last few."""
        if self.indexed is not None and len(self.labels) - len(self.indexed.order) <= indices.TAIL:
            return self.indexed
        return indices.current(self.indexed, self.rows, self.labels, len(self.classes))

    @cached_property
    def means(self) -> Tensor:
        """(N, d) of the features of each class."""
        sums = indices.class_sums(self.index, self.rows, self.labels, len(self.classes))
        return sums / self.counts[:, None]

    @cached_property
    def view(self) -> View:
        """How features are looked at, from the newest entries of each class, as many as can be looked at whole."""
        order = self.labels.flip(0).argsort(stable=True)
        starts = self.counts.cumsum(0) - self.counts
        newest = torch.arange(len(order)) - starts.repeat_interleave(self.counts) < max(
            2, MOST_EXACT // len(self.counts)
        )
        rows = (len(order) - 1 - order[newest]).sort().values
        return fit_view(self.rows[rows].float(), self.labels[rows], len(self.classes))

    def check_size(self, by_features: bool, engine: str) -> None:
        """Refuse more pictures than an engine that compares pictures themselves can look at."""
        if not (self.exact or by_features):
            raise EngramError(
                f"{len(self.labels)} pictures are more than the {MOST_EXACT} that '{engine}' can remember, for it "
                f"compares pictures themselves: give fewer, or take an engine that compares features"
            )

    def check(self, image_shape: tuple[int, ...] = ()) -> None:
        """Refuse parts that do not belong together, and where given pictures of another shape."""
        if image_shape and len(self.items) and tuple(self.items.shape[1:]) != image_shape:
            raise ValueError(f"its pictures have the shape {tuple(self.items.shape[1:])}, not {image_shape}")
        counts = {len(self.items), len(self.labels), len(self.tasks), len(self.digests)}
        present = torch.zeros(0) if not len(self.labels) or self.labels.min() < 0 else torch.bincount(self.labels)
        if len(counts) > 1 or len(present) != len(self.classes) or not bool((present > 0).all()):
            raise ValueError(f"its pictures are not of its {len(self.classes)} classes")

    def add(self, items: Tensor, labels: Sequence[Any], capacity: int | None, digests: Tensor | None = None) -> Memory:
        """One more task; known classes keep their numbers, new ones get the next, in sorted order. A picture that its
        class has already, by its digest, is not counted again."""
        classes = (*self.classes, *in_order(set(labels) - set(self.classes)))
        number = {label: i for i, label in enumerate(classes)}
        new = torch.tensor([number[label] for label in labels], dtype=torch.int64)
        digests = torch.zeros_like(new) if digests is None else digests
        if len(self.labels) and not bool((fresh := ~self._knows(new, digests)).all()):
            items, new, digests = items[fresh], new[fresh], digests[fresh]
            if not len(new):
                return self
        joined = Memory(
            classes,
            self._joined(items),
            torch.cat([self.labels, new]),
            torch.cat([self.tasks, torch.full_like(new, self.next_task)]),
            torch.cat([self.digests, digests]),
            self.stored,
            self.__dict__.get("index", self.indexed),
        )
        return joined if capacity is None else joined.keep(joined.newest(capacity))

    def _knows(self, labels: Tensor, digests: Tensor) -> Tensor:
        """(n,) whether a class has a picture of this digest."""
        keys, own = ((d ^ (n * 0x9E3779B97F4A7C1)).numpy() for d, n in ((digests, labels), (self.digests, self.labels)))
        return torch.from_numpy(np.isin(keys, own[self.digests.numpy() != 0]) & (digests.numpy() != 0))

    def _joined(self, items: Tensor) -> Tensor | Rows:
        """Joined to one tensor as long as an engine is to see it whole; beyond, in half precision and not copied."""
        if isinstance(self.items, Rows):
            return self.items.joined(items)
        if not len(self.items):
            return items if len(items) <= MOST_EXACT else Rows((in_half(items),))
        if len(self.items) + len(items) <= MOST_EXACT:
            return torch.cat([self.items, items])
        return Rows((in_half(self.items),)).joined(items)

    def newest(self, capacity: int) -> Tensor:
        """(S,) which pictures stay if a class may keep ``capacity``: whole tasks, the newest first, one at least."""
        kept = torch.zeros(len(self.labels), dtype=torch.bool)
        for number in range(len(self.classes)):
            room = capacity
            for task in self.tasks[self.labels == number].unique().flip(0):
                chosen = (self.labels == number) & (self.tasks == task)
                room -= int(chosen.sum())
                if room < 0 and bool(kept[self.labels == number].any()):
                    break
                kept |= chosen
        return kept

    def forget(self, label: Any) -> Memory:
        """The memory without a class."""
        if label not in self.classes:
            raise EngramError(f"there is no class '{label}' to forget{nearest(str(label), map(str, self.classes))}")
        gone = self.classes.index(label)
        rest = self.keep(self.labels != gone)
        classes = (*self.classes[:gone], *self.classes[gone + 1 :])
        return replace(rest, classes=classes, labels=rest.labels - (rest.labels > gone).long())

    def keep(self, chosen: Tensor) -> Memory:
        if bool(chosen.all()):
            return self
        items = self.items[chosen]
        labels, tasks, digests = (part[chosen] for part in (self.labels, self.tasks, self.digests))
        stored = self.stored and self.stored._replace(first=False)
        rows = Rows((items,)) if len(items) > MOST_EXACT else items.float() if items.dtype == torch.half else items
        return Memory(self.classes, rows, labels, tasks, digests, stored)


def nothing() -> Memory:
    empty = torch.zeros(0, dtype=torch.int64)
    return Memory((), torch.zeros(0), empty, empty)


def in_half(items: Tensor) -> Tensor:
    """Features in half precision, where they fit in it; pictures as they are."""
    if not items.is_floating_point() or items.abs().max() > torch.finfo(torch.float16).max:
        return items
    return items.half()


def as_labels(y: Any, n_pictures: int) -> list[Any]:
    """One plain Python label for each picture; numbers of both are told where they differ."""
    if hasattr(y, "__array__") and not hasattr(y, "__iter__"):
        y = np.asarray(y)
    if y is None or (isinstance(y, np.ndarray | Tensor) and y.ndim != 1):
        shape = f"has the shape {tuple(y.shape)}" if y is not None else "is None"
        raise EngramError(f"a classifier requires y to be passed, but the target y {shape}: give one label a picture")
    labels = [value.item() if isinstance(value, np.generic | Tensor) else value for value in y]
    if len(labels) != n_pictures:
        raise EngramError(f"there are {n_pictures} pictures but {len(labels)} labels: give one label for each picture")
    for place, label in enumerate(labels):
        if label is None or label != label or label in (inf, -inf):  # NaN is the one value that differs from itself
            raise EngramError(f"label {place} of y is missing ({label}): give one label for each picture")
    return labels


def in_order(labels: set[Any]) -> list[Any]:
    """Sorted where labels can be compared, else by kind and text."""
    try:
        return sorted(labels)
    except TypeError:
        return sorted(labels, key=lambda label: (type(label).__name__, str(label)))
