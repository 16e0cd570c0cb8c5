"""What a classifier remembers: labelled pictures as its engine sees them, with their classes and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.errors import EngramError, nearest


@dataclass(frozen=True)
class Memory:
    """S pictures in the order they came, task by task; classes keep their numbers as long as they are remembered."""

    classes: tuple[Any, ...]
    items: Tensor
    """(S, ...) features, or pictures where the engine asks for them"""
    labels: Tensor
    """(S,) number of the class"""
    tasks: Tensor
    """(S,) number of the task, from 0 on"""

    @property
    def counts(self) -> Tensor:
        """(N,) pictures of each class."""
        return torch.bincount(self.labels, minlength=len(self.classes))

    @property
    def next_task(self) -> int:
        return int(self.tasks[-1]) + 1 if len(self.tasks) else 0

    def check(self) -> None:
        """Refuse parts that do not belong together."""
        counts = {len(self.items), len(self.labels), len(self.tasks)}
        if len(counts) > 1 or set(self.labels.tolist()) != set(range(len(self.classes))):
            raise ValueError(f"its pictures are not of its {len(self.classes)} classes")

    def add(self, items: Tensor, labels: Sequence[Any], capacity: int | None) -> Memory:
        """One more task; known classes keep their numbers, new ones get the next, in sorted order."""
        classes = (*self.classes, *in_order(set(labels) - set(self.classes)))
        number = {label: i for i, label in enumerate(classes)}
        new = torch.tensor([number[label] for label in labels], dtype=torch.int64)
        joined = Memory(
            classes,
            torch.cat([self.items, items]) if len(self.items) else items,
            torch.cat([self.labels, new]),
            torch.cat([self.tasks, torch.full_like(new, self.next_task)]),
        )
        return joined if capacity is None else joined.keep(joined.newest(capacity))

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
        return Memory(classes, rest.items, rest.labels - (rest.labels > gone).long(), rest.tasks)

    def keep(self, chosen: Tensor) -> Memory:
        return Memory(self.classes, self.items[chosen], self.labels[chosen], self.tasks[chosen])


def nothing() -> Memory:
    empty = torch.zeros(0, dtype=torch.int64)
    return Memory((), torch.zeros(0), empty, empty)


def as_labels(y: Any, n_pictures: int) -> list[Any]:
    """One plain Python label for each picture; numbers of both are told where they differ."""
    labels = [value.item() if isinstance(value, np.generic | Tensor) else value for value in y]
    if len(labels) != n_pictures:
        raise EngramError(f"there are {n_pictures} pictures but {len(labels)} labels: give one label for each picture")
    for place, label in enumerate(labels):
        if label is None or label != label:  # NaN is the one value that differs from itself
            raise EngramError(f"label {place} of y is missing ({label}): give one label for each picture")
    return labels


def in_order(labels: set[Any]) -> list[Any]:
    """Sorted where labels can be compared, else by kind and text."""
    try:
        return sorted(labels)
    except TypeError:
        return sorted(labels, key=lambda label: (type(label).__name__, str(label)))
