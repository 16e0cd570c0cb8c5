"""Steps of a stream side by side: which of them can go through a network together, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.nn.evidence import Task


class Step(Protocol):
    """What is read of an `Episode`."""

    @property
    def support(self) -> Tensor: ...
    @property
    def support_labels(self) -> Tensor: ...
    @property
    def query(self) -> Tensor: ...
    @property
    def n_way(self) -> int: ...
    @property
    def class_names(self) -> Tensor | None: ...


AnyStep = TypeVar("AnyStep", bound=Step)


def equal_shapes(steps: Sequence[AnyStep]) -> list[list[AnyStep]]:
    """Runs of consecutive steps whose tensors can be stacked."""
    return [list(run) for _, run in groupby(steps, lambda e: (e.support.shape, e.query.shape, e.n_way))]


def stacked_task(steps: Sequence[Step]) -> Task:
    """Features of T steps of one shape as one `Task`, each picture a float32 vector."""
    support, query = (
        torch.stack([part.flatten(2).float() for part in parts])
        for parts in ([e.support for e in steps], [e.query for e in steps])
    )
    labels = torch.stack([e.support_labels for e in steps])
    return Task(support, labels, query, stacked_names(steps), steps[0].n_way)


def stacked_names(steps: Sequence[Step]) -> Tensor | None:
    """Names of T steps (T, B, n_way), or None for an anonymous stream."""
    names = [e.class_names for e in steps if e.class_names is not None]
    if names and len(names) < len(steps):
        raise EngramError(f"{len(names)} of {len(steps)} tasks of the stream are named: name all of them or none")
    return torch.stack(names) if names else None
