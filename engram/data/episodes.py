"""Drawing tasks: index lists first (`draw_tasks`, numpy, vectorised), images after (`episodes_at`).

The index lists are the same on every device and for every batch size, so an evaluation is a frozen list with a digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from engram.data.store import Store
from engram.data.streams import distinct, draw_classes
from engram.protocol import Protocol
from engram.types import Answers, Episode

HIDDEN = -2
"""below -1, what an unlabelled support is told apart by"""


@dataclass(frozen=True)
class TaskList:
    """Index lists of B sequences of T tasks; rows point into the store."""

    support_rows: np.ndarray
    """(B, T, S)"""
    support_labels: np.ndarray
    """(B, T, S), -1 where unlabelled"""
    query_rows: np.ndarray
    """(B, T, Q)"""
    query_labels: np.ndarray
    """(B, T, Q)"""
    class_ids: np.ndarray
    """(B, T, n_way) class of the split behind each label"""
    class_names: np.ndarray | None
    """(B, T, n_way) identities that persist over a named stream"""
    hidden_labels: np.ndarray | None = None
    """(B, T, S) labels of all supports, where a protocol gives them away"""

    @property
    def n_sequences(self) -> int:
        return len(self.support_rows)

    @property
    def stream_length(self) -> int:
        return self.support_rows.shape[1]

    @property
    def digest(self) -> str:
        digest = hashlib.sha256()
        for f in fields(self):
            if (array := getattr(self, f.name)) is not None:
                digest.update(np.ascontiguousarray(array, dtype=np.int64).tobytes())
        return digest.hexdigest()[:16]

    def slice(self, sequences: slice, steps: slice = slice(None)) -> TaskList:
        parts = {f.name: a[sequences, steps] for f in fields(self) if (a := getattr(self, f.name)) is not None}
        return replace(self, **parts)


def draw_tasks(store: Store, protocol: Protocol, rng: np.random.Generator, n_sequences: int | None = None) -> TaskList:
    """Draw sequences of tasks as the protocol says. Classes get their labels in random order in every task."""
    n_sequences = n_sequences or protocol.n_sequences
    n_way, steps = protocol.n_way, protocol.stream_length
    class_ids, names = draw_classes(store.n_classes, protocol, rng, n_sequences)
    query_counts = _query_counts(store, protocol, rng, class_ids)
    needed = protocol.n_shot + int(query_counts.max())
    flat_ids = class_ids.reshape(-1)
    groups = _distinct_up_to(rng, store.group_counts[flat_ids], needed)
    variants = rng.integers(0, store.info.group_size, groups.shape) if store.info.group_size > 1 else 0
    rows = store.offsets[flat_ids][:, None] + groups * store.info.group_size + variants
    rows = rows.reshape(n_sequences, steps, n_way, needed)

    support_rows = rows[..., : protocol.n_shown].reshape(n_sequences, steps, -1)
    labels = np.arange(n_way)[:, None]
    # A hidden label c travels as HIDDEN - c, so that it is shuffled with its image.
    marked = np.where(np.arange(protocol.n_shown) < protocol.n_labelled, labels, HIDDEN - labels)
    support_labels = np.broadcast_to(marked.reshape(-1), support_rows.shape)
    query_rows, query_labels = _queries(rows[..., protocol.n_shot :], query_counts)
    if protocol.slot_order == "shuffled":
        support_rows, support_labels = _shuffle(rng, support_rows, support_labels)
        query_rows, query_labels = _shuffle(rng, query_rows, query_labels)
    hidden = np.where(support_labels < 0, HIDDEN - support_labels, support_labels)
    support_labels = np.maximum(support_labels, -1)
    known = names if protocol.names == "named" else None
    shown = hidden if protocol.hidden_labels_shown else None
    return TaskList(support_rows, support_labels, query_rows, query_labels, class_ids, known, shown)


def _distinct_up_to(rng: np.random.Generator, sizes: np.ndarray, count: int) -> np.ndarray:
    """`distinct`, where a class may be smaller than ``count`` (unbalanced queries): the surplus is not used."""
    if sizes.min() >= count:
        return distinct(rng, sizes, count)
    keys = rng.random((len(sizes), int(sizes.max())))
    keys[np.arange(keys.shape[1])[None] >= sizes[:, None]] = 2.0  # absent images come last
    order = keys.argsort(1)[:, :count]
    return np.minimum(order, sizes[:, None] - 1)


def _query_counts(store: Store, protocol: Protocol, rng: np.random.Generator, class_ids: np.ndarray) -> np.ndarray:
    """(B, T, n_way) queries of each class; their sum is the same in every task."""
    if protocol.query_balance == "balanced":
        return np.full(class_ids.shape, protocol.n_query)
    total = protocol.n_way * protocol.n_query
    shares = rng.dirichlet(np.full(protocol.n_way, protocol.dirichlet_alpha), class_ids.shape[:2])
    counts = rng.multinomial(total, shares)
    room = store.group_counts[class_ids] - protocol.n_shot
    counts = np.minimum(counts, room)
    while (missing := total - counts.sum(-1)).any():  # what a small class cannot give goes to the one with most room
        widest = (room - counts).argmax(-1)[..., None]
        np.put_along_axis(counts, widest, np.take_along_axis(counts, widest, -1) + (missing > 0)[..., None], -1)
    return counts


def _queries(rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(B, T, n_way, most) candidate rows and counts -> (B, T, Q) rows and labels in class order."""
    sequences, steps, n_way, most = rows.shape
    used = np.arange(most) < counts[..., None]
    labels = np.broadcast_to(np.arange(n_way)[:, None], rows.shape)
    return rows[used].reshape(sequences, steps, -1), labels[used].reshape(sequences, steps, -1)


def _shuffle(rng: np.random.Generator, rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = rng.random(rows.shape).argsort(-1)
    return np.take_along_axis(rows, order, -1), np.take_along_axis(labels, order, -1)


def frozen_tasks(store: Store, protocol: Protocol) -> TaskList:
    """The evaluation tasks of a protocol: decided by its seed and the store alone."""
    protocol.check(store)
    return draw_tasks(store, protocol, np.random.default_rng(protocol.seed))


def time_major(tasks: TaskList) -> dict[str, np.ndarray]:
    """The lists by name, (T, B, ...) whole numbers; names where the stream has them."""
    arrays = {f.name: array for f in fields(tasks) if (array := getattr(tasks, f.name)) is not None}
    return {name: np.ascontiguousarray(array.swapaxes(0, 1)) for name, array in arrays.items()}


def episodes_from(
    store: Store, lists: Mapping[str, torch.Tensor], n_way: int
) -> tuple[tuple[Episode, ...], tuple[Answers, ...]]:
    """T episodes of B tasks each with their images, and their sealed answers, from `time_major` lists as tensors."""
    device = lists["query_labels"].device

    def images(rows: str) -> torch.Tensor:
        found = store.gather(lists[rows])
        # Out of a memory map too large for the GPU: a pinned copy goes over while the GPU is still at its last step.
        return found if found.device == device else found.pin_memory().to(device, non_blocking=True)

    support, query = images("support_rows"), images("query_rows")
    steps = range(len(support))

    def at(name: str, t: int) -> torch.Tensor | None:
        return lists[name][t] if name in lists else None

    episodes = tuple(
        Episode(support[t], lists["support_labels"][t], query[t], n_way, at("class_names", t), at("hidden_labels", t))
        for t in steps
    )
    return episodes, tuple(Answers(lists["query_labels"][t], lists["class_ids"][t]) for t in steps)


def episodes_at(
    store: Store, tasks: TaskList, n_way: int, device: torch.device | str = "cpu"
) -> tuple[tuple[Episode, ...], tuple[Answers, ...]]:
    """Images for all tasks of a list: T episodes of B tasks each, and their sealed answers."""
    return episodes_from(store, placed(store, time_major(tasks), device), n_way)


def placed(store: Store, lists: Mapping[str, np.ndarray], device: torch.device | str) -> dict[str, torch.Tensor]:
    """Rows go where the store's images are, everything else to ``device``."""
    return {
        name: torch.from_numpy(array).to(store.images.device if name.endswith("rows") else device, non_blocking=True)
        for name, array in lists.items()
    }
