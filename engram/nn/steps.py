"""Steps of a stream side by side: which can go through a network together, their names, and what a graph answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.nn.evidence import Task
from engram.nn.slot_graph import GraphAnswer


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


class Core(Protocol):
    """A graph over steps of one shape: `SlotGraph`, `ContentGraph`."""

    def answer(
        self, task: Task, history: tuple[Tensor, ...], samples: int
    ) -> tuple[GraphAnswer, list[tuple[Tensor, ...]]]: ...


AnyStep = TypeVar("AnyStep", bound=Step)


def equal_shapes(steps: Sequence[AnyStep]) -> list[list[AnyStep]]:
    """Runs of consecutive steps whose tensors can be stacked."""
    return [list(run) for _, run in groupby(steps, lambda e: (e.support.shape, e.query.shape, e.n_way))]


def slot_by_slot(encode: Callable[[Tensor], Tensor], steps: Sequence[AnyStep]) -> list[AnyStep]:
    """The steps with features, one call of ``encode`` for each slot of all tasks of one shape.

    In training BatchNorm then sees one image of every task. Statistics of so few images are noisy, and differ from slot
    to slot. Shapes: supports (B, S, ...) and queries (B, Q, ...) of every step -> the same with features
    """
    seen: list[AnyStep] = []
    for group in equal_shapes(steps):
        images = torch.stack([torch.cat([step.support, step.query], 1) for step in group])
        slots = images.flatten(0, 1).transpose(0, 1).contiguous()
        features = torch.stack([encode(slot) for slot in slots], 1).unflatten(0, images.shape[:2])
        n_support = group[0].support.shape[1]
        for step, found in zip(group, features, strict=True):
            seen.append(replace(step, support=found[:, :n_support], query=found[:, n_support:]))  # type: ignore[type-var]
    return seen


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


def answer_together(
    core: Core, steps: Sequence[Step], history: tuple[Tensor, ...], samples: int
) -> tuple[GraphAnswer, list[tuple[Tensor, ...]]]:
    """The graph over T steps of one shape, and the history after each. Always in float32."""
    with torch.autocast(steps[0].support.device.type, enabled=False):
        return core.answer(stacked_task(steps), history, samples)


def answer_in_turn(
    core: Core, steps: Sequence[Step], history: tuple[Tensor, ...], samples: int, keep_samples: bool
) -> Iterator[tuple[Tensor, tuple[Tensor, ...], dict[str, Tensor]]]:
    """Log-probabilities (B, Q, n_way), history and details of each step; those of one shape run together."""
    for group in equal_shapes(steps):
        answer, histories = answer_together(core, group, history, samples)
        for step, log_probs in enumerate(answer.class_samples.mean(0).log()):
            history, details = histories[step], {"edges": answer.edges[:, step].movedim(0, 1)}
            if keep_samples:
                details["samples"] = answer.class_samples[:, step]
            if answer.votes is not None:
                details["votes"] = answer.votes[:, step]
            yield log_probs, history, details
