"""A bounded memory of entries, addressed by content and by name, never by slot: tensors and functions on them.

Each of B streams has its own entries, in the order of time. Whatever does not fit is forgotten oldest step first, and a
step is forgotten whole, so that the order of the entries within it can never matter.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engram.errors import EngramError

PARTS = 3


class MemoryBank(NamedTuple):
    """Entries of B streams in the order of their steps; empty places, if any, stand first."""

    features: Tensor
    """(B, C, d), zero where empty"""
    names: Tensor
    """(B, C) int64 name of each entry, -1 = none"""
    step: Tensor
    """(B, C) int64 step that brought it, never falling along C; -1 = empty"""


def empty(batch: int, width: int, device: torch.device | str, dtype: torch.dtype = torch.float32) -> MemoryBank:
    none = torch.zeros(batch, 0, dtype=torch.int64, device=device)
    return MemoryBank(torch.zeros(batch, 0, width, dtype=dtype, device=device), none, none)


def from_history(history: tuple[Tensor, ...], features: Tensor, method: str) -> MemoryBank:
    """The bank in a history, empty for ``()``, checked against the features (B, n, d) that are to meet it."""
    batch, _, width = features.shape
    if not history:
        return empty(batch, width, features.device, features.dtype)
    if len(history) != PARTS or [h.ndim for h in history] != [3, 2, 2]:
        raise EngramError(
            f"{method} keeps {PARTS} tensors of 3, 2 and 2 axes but the history has {len(history)} of "
            f"{[h.ndim for h in history]}: start the stream with an empty history, or with one of this method"
        )
    bank = MemoryBank(*history)
    if len(bank.features) != batch:
        raise EngramError(
            f"{method} was given {batch} streams but a history of {len(bank.features)}: hand on the history of the "
            f"same streams"
        )
    if bank.features.shape[2] != width:
        raise EngramError(
            f"{method} remembers features of width {bank.features.shape[2]} but the task's have {width}: "
            f"hand on a history of the same backbone and settings"
        )
    return bank


def check_names(bank: MemoryBank, class_names: Tensor | None, method: str) -> None:
    """A stream is named from start to end, or not at all: half of it could be neither matched nor told apart."""
    if bank.step.shape[1] == 0:
        return
    filled = bank.step >= 0
    named = int(((bank.names >= 0) & filled).any(1).sum())
    streams = int(filled.any(1).sum())
    if class_names is None and named:
        raise EngramError(
            f"{method}: the past of {named} of {streams} streams has class names but this task has none: "
            f"give names to all tasks of a stream or to none"
        )
    if class_names is not None and named < streams:
        raise EngramError(
            f"{method}: this task has class names but the past of {streams - named} of {streams} streams has none: "
            f"give names to all tasks of a stream or to none"
        )


def check_capacity(capacity: int, entries: int, method: str) -> None:
    if entries > capacity:
        raise EngramError(
            f"{method}: one task brings {entries} entries but [method] capacity = {capacity}: raise it to {entries} at "
            f"least"
        )


def names_of(labels: Tensor, class_names: Tensor | None) -> Tensor:
    """The name behind each label, -1 where unlabelled or anonymous: (B, S), (B, n_way) -> (B, S)."""
    if class_names is None:
        return torch.full_like(labels, -1)
    return torch.where(labels >= 0, class_names.gather(1, labels.clamp(min=0)), -1)


def match(bank: MemoryBank, class_names: Tensor) -> Tensor:
    """Which entries bear the name of which class: (B, C), (B, n_way) -> (B, C, n_way) bool."""
    return (bank.names[:, :, None] == class_names[:, None, :]) & (bank.step >= 0)[:, :, None]


def next_step(bank: MemoryBank) -> Tensor:
    """(B,) the step after the last one remembered; 0 for an empty bank."""
    if bank.step.shape[1] == 0:
        return torch.zeros(len(bank.step), dtype=torch.int64, device=bank.step.device)
    return bank.step[:, -1] + 1


def visible(step: Tensor, now: Tensor, capacity: int) -> Tensor:
    """Which entries a reader at each time sees: of the steps before it, the latest that fit the capacity together.

    The same window that `append` leaves, for all readers at once: entry e is seen at time t where 0 <= step_e < t and
    no more than ``capacity`` entries have a step in [step_e, t).

    Shapes: step (B, C) never falling along C, now (B, R) -> (B, R, C) bool
    """
    step, now = step.contiguous(), now.contiguous()
    since = torch.searchsorted(step, now)[:, :, None] - torch.searchsorted(step, step)[:, None, :]
    return (step >= 0)[:, None, :] & (step[:, None, :] < now[:, :, None]) & (since <= capacity)


def append(bank: MemoryBank, features: Tensor, names: Tensor, step: Tensor, capacity: int) -> MemoryBank:
    """The bank after one more step of entries, at most ``capacity`` of them in each stream.

    Shapes: features (B, S, d), names (B, S), step (B,) above all remembered
    """
    now = step[:, None]
    joined = MemoryBank(
        torch.cat([bank.features, features], 1),
        torch.cat([bank.names, names], 1),
        torch.cat([bank.step, now.expand_as(names)], 1),
    )
    return keep(joined, visible(joined.step, now + 1, capacity)[:, 0])


def keep(bank: MemoryBank, kept: Tensor) -> MemoryBank:
    """Only the entries of the mask (B, C); places that no stream uses any more are given up."""
    size = int(kept.sum(1).max()) if kept.shape[1] else 0
    order = kept.to(torch.int8).argsort(stable=True, dim=1)[:, kept.shape[1] - size :]  # forgotten ones first
    kept = kept.gather(1, order)
    features = bank.features.gather(1, order[..., None].expand(-1, -1, bank.features.shape[2]))
    return MemoryBank(
        torch.where(kept[..., None], features, 0),
        torch.where(kept, bank.names.gather(1, order), -1),
        torch.where(kept, bank.step.gather(1, order), -1),
    )
