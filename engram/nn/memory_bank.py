"""A bounded memory of entries, addressed by content and by name, never by slot: tensors and functions on them.

Each of B streams has its own entries, in the order of time. Whatever does not fit is forgotten oldest step first, and a
step is forgotten whole, so that the order of the entries within it can never matter.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from engram.errors import EngramError

SUPPORT, QUERY, PICTURE, CLASS_SUPPORTS, CLASS_QUERIES, CLASS = range(6)
KINDS = (
    "supports",
    "queries",
    "pictures",
    *(f"{what} of a class together" for what in ("supports", "queries", "pictures")),
)


class Bank(NamedTuple):
    """Entries of B streams in the order of their steps; empty places, if any, stand first."""

    features: Tensor
    """(B, E, d), zero where empty"""
    weights: Tensor
    """(B, E) pictures behind an entry, zero where empty"""
    names: Tensor
    """(B, E) int64 name of each entry, -1 = none"""
    kinds: Tensor
    """(B, E) int64 place in `KINDS`: each method makes its own, which tells its history from another's; -1 = empty"""
    steps: Tensor
    """(B, E) int64 step that brought it, never falling along E; -1 = empty"""


def empty(batch: int, width: int, device: torch.device | str) -> Bank:
    none = torch.zeros(batch, 0, dtype=torch.int64, device=device)
    return Bank(torch.zeros(batch, 0, width, device=device), none.float(), none, none, none)


def made(
    features: Tensor, kinds: Tensor | int, steps: Tensor, names: Tensor | None = None, weights: Tensor | None = None
) -> Bank:
    """New entries, one picture each and without a name where nothing else is said.

    Shapes: features (..., B, e, d), kinds one or (e,), steps (..., B), names and weights (..., B, e)
    """
    like = steps[..., None].expand(features.shape[:-1])
    names = torch.full_like(like, -1) if names is None else names
    weights = torch.ones_like(features[..., 0]) if weights is None else weights
    return Bank(features, weights, names, torch.as_tensor(kinds, device=like.device).expand_as(like), like)


def in_time(entries: Bank) -> Bank:
    """Entries of T steps, (T, B, e, ...), as one bank of T * e in the order of time, (B, T e, ...)."""
    return Bank(*(part.transpose(0, 1).flatten(1, 2) for part in entries))


def join(bank: Bank, later: Bank) -> Bank:
    return Bank(*(torch.cat(pair, 1) for pair in zip(bank, later, strict=True)))


def from_history(
    history: tuple[Tensor, ...], features: Tensor, class_names: Tensor | None, method: str, kinds: set[int]
) -> Bank:
    """The bank in a history, empty for ``()``, checked against the task that is to meet it.

    ``features`` (B, n, d) and ``class_names`` are the task's; ``kinds`` are the entries that ``method`` makes of it.
    """
    batch, _, width = features.shape
    if not history:
        return empty(batch, width, features.device)
    axes = [3, 2, 2, 2, 2]
    if [part.ndim for part in history] != axes:
        raise EngramError(
            f"{method} keeps {len(axes)} tensors of {axes} axes but the history has {len(history)} of "
            f"{[part.ndim for part in history]}: start the stream with an empty history, or with one of this method"
        )
    bank = Bank(*history)
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
    _check_names(bank, class_names, method)
    found = {kind for kind in range(len(KINDS)) if bool((bank.kinds == kind).any())}
    if found and found != kinds:
        have, want = (" and ".join(KINDS[kind] for kind in sorted(those)) for those in (found, kinds))
        raise EngramError(
            f"{method} remembers {want} but the history holds {have}: hand on the history of the same method"
        )
    return bank


def _check_names(bank: Bank, class_names: Tensor | None, method: str) -> None:
    """A stream is named from start to end, or not at all: half of it could be neither matched nor told apart."""
    filled = bank.steps >= 0
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


def match(bank: Bank, class_names: Tensor) -> Tensor:
    """Which entries bear the name of which class: (B, E), (..., B, n_way) -> (..., B, n_way, E) bool."""
    return (class_names[..., None] == bank.names[:, None]) & (bank.steps >= 0)[:, None]


def next_step(bank: Bank) -> Tensor:
    """(B,) the step after the last one remembered; 0 for an empty bank."""
    if bank.steps.shape[1] == 0:
        return torch.zeros(len(bank.steps), dtype=torch.int64, device=bank.steps.device)
    return bank.steps[:, -1] + 1


def visible(steps: Tensor, now: Tensor, capacity: int) -> Tensor:
    """The causal window of T readers at once: of the steps before each, the latest that fit the capacity together.

    Entry e is seen at time t where 0 <= step_e < t and no more than ``capacity`` entries have a step in [step_e, t).

    Shapes: steps (B, E) never falling along E, now (T, B) -> (T, B, E) bool
    """
    since = _earlier(steps, now.T).T[..., None] - _earlier(steps, steps)
    return (steps >= 0) & (steps < now[..., None]) & (since <= capacity)


def _earlier(steps: Tensor, times: Tensor) -> Tensor:
    """How many entries have a step before each time. (B, E) never falling along E, (B, n) -> (B, n)"""
    if torch.compiler.is_exporting():  # formats for exchange know comparisons, not searches
        return (steps[:, None, :] < times[:, :, None]).sum(-1)
    return torch.searchsorted(steps.contiguous(), times.contiguous())


def append(bank: Bank, entries: Bank, capacity: int) -> Bank:
    """The bank after one more step of entries (B, e, ...), at most ``capacity`` of them in each stream."""
    joined = join(bank, entries)
    return keep(joined, visible(joined.steps, next_step(joined)[None], capacity)[0])


def keep(bank: Bank, kept: Tensor) -> Bank:
    """Only the entries of the mask (B, E); places that no stream uses any more are given up."""
    size = int(kept.sum(1).max()) if kept.shape[1] else 0
    order = kept.to(torch.int8).argsort(stable=True, dim=1)[:, kept.shape[1] - size :]  # forgotten ones first
    kept = kept.gather(1, order)
    features = bank.features.gather(1, order[..., None].expand(-1, -1, bank.features.shape[2]))
    rest = (
        torch.where(kept, part.gather(1, order), nothing)
        for part, nothing in zip(bank[1:], (0.0, -1, -1, -1), strict=True)
    )
    return Bank(torch.where(kept[..., None], features, 0), *rest)


def histories(bank: Bank, now: Tensor, capacity: int) -> list[tuple[Tensor, ...]]:
    """What is handed on after each of T steps: what a reader of the next one sees, as views of one bank.

    For streams that have come the same way, so that the window of one is the window of all: now (T, B).
    """
    kept = visible(bank.steps[:1], now[:, :1] + 1, capacity)[:, 0]
    first = kept.int().argmax(-1).tolist()
    last = (bank.steps[0] <= now[:, :1]).sum(-1).tolist()
    return [tuple(part[:, start:end] for part in bank) for start, end in zip(first, last, strict=True)]
