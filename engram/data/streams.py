"""Which classes a stream meets and when: free, at a fixed recurrence, or out of a pool that drifts.

`draw_classes` decides it from random numbers alone; the images are drawn after, in `engram.data.episodes`. `encounters`
and `gaps` read off a drawn stream how often, and how long ago, each class was met before.
"""

from __future__ import annotations

import numpy as np

from engram.protocol import Protocol


def distinct(rng: np.random.Generator, sizes: np.ndarray, count: int) -> np.ndarray:
    """For each row i, ``count`` distinct numbers of range(sizes[i]) in random order: (n,) -> (n, count).

    Floyd's method, all rows at once: O(count) vector steps whatever the sizes.
    """
    n = len(sizes)
    chosen = np.full((n, count), -1, dtype=np.int64)
    draws = rng.random((n, count))
    for k in range(count):
        last = sizes - count + k
        candidate = (draws[:, k] * (last + 1)).astype(np.int64)
        taken = (chosen[:, :k] == candidate[:, None]).any(1)
        chosen[:, k] = np.where(taken, last, candidate)
    return np.take_along_axis(chosen, rng.random((n, count)).argsort(1), 1)


def draw_classes(
    n_classes: int, protocol: Protocol, rng: np.random.Generator, n_sequences: int
) -> tuple[np.ndarray, np.ndarray]:
    """Class of the split behind each label, and its name in the stream: both (B, T, n_way), labels in random order."""
    pool = protocol.pool_classes or n_classes
    places = _places(pool, protocol, rng, n_sequences)
    if protocol.drift:
        return _drifting(n_classes, pool, places, protocol.drift, rng)
    if pool == n_classes:
        return places, places
    pools = rng.random((n_sequences, n_classes)).argsort(1)[:, :pool]
    return np.take_along_axis(pools[:, None, :], places, 2), places


def _places(pool: int, protocol: Protocol, rng: np.random.Generator, n_sequences: int) -> np.ndarray:
    """Places of the pool that a task draws its classes from: (B, T, n_way)."""
    n_way, steps = protocol.n_way, protocol.stream_length
    if not protocol.recurrence_gap:
        return distinct(rng, np.full(n_sequences * steps, pool), n_way).reshape(n_sequences, steps, n_way)
    # The pool is dealt to period = gap + 1 tasks, which then come round and round, each time with new labels.
    period = protocol.recurrence_gap + 1
    dealt = rng.random((n_sequences, pool)).argsort(1).reshape(n_sequences, period, n_way)
    round_and_round = dealt[:, np.arange(steps) % period]
    return np.take_along_axis(round_and_round, rng.random(round_and_round.shape).argsort(-1), -1)


def _drifting(
    n_classes: int, pool: int, places: np.ndarray, drift: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The class in each place, where before every task but the first one place may pass to another class.

    A name is the order of arrival: 0 to pool - 1 at the start, then pool, pool + 1, ... Classes that left wait behind
    those that never came, and bring their own name back should their turn come.
    """
    sequences, steps, _ = places.shape
    order = rng.random((sequences, n_classes)).argsort(1)
    names = np.tile(np.arange(n_classes), (sequences, 1))  # in the pool first, then waiting
    replaced = rng.random((sequences, steps)) < drift
    leaving = rng.integers(0, pool, (sequences, steps))
    drawn = np.empty_like(places)
    for t in range(steps):
        rows = np.flatnonzero(replaced[:, t]) if t else np.empty(0, np.int64)
        gone = names[rows, leaving[rows, t]]
        names[rows, leaving[rows, t]] = names[rows, pool]
        names[rows, pool:] = np.concatenate([names[rows, pool + 1 :], gone[:, None]], 1)
        drawn[:, t] = np.take_along_axis(names, places[:, t], 1)
    return np.take_along_axis(order[:, None, :], drawn, 2), drawn


def encounters(class_ids: np.ndarray) -> np.ndarray:
    """Earlier tasks of the stream in which the class of each label appeared: (B, T, n_way) -> (B, T, n_way)."""
    seen = np.zeros((len(class_ids), int(class_ids.max()) + 1), dtype=np.int64)
    counts = np.empty_like(class_ids)
    for t in range(class_ids.shape[1]):
        counts[:, t] = np.take_along_axis(seen, class_ids[:, t], 1)
        np.put_along_axis(seen, class_ids[:, t], counts[:, t] + 1, 1)
    return counts


def gaps(class_ids: np.ndarray) -> np.ndarray:
    """Steps since the class of each label last appeared, 1 = in the task before, -1 = never: (B, T, n_way) both."""
    last = np.full((len(class_ids), int(class_ids.max()) + 1), -1, dtype=np.int64)
    since = np.empty_like(class_ids)
    for t in range(class_ids.shape[1]):
        before = np.take_along_axis(last, class_ids[:, t], 1)
        since[:, t] = np.where(before < 0, -1, t - before)
        np.put_along_axis(last, class_ids[:, t], t, 1)
    return since


def of_queries(values: np.ndarray, query_labels: np.ndarray) -> np.ndarray:
    """A number of each class as a number of each query: (B, T, n_way), (B, T, Q) -> (B, T, Q)."""
    return np.take_along_axis(values, query_labels, 2)


def met_before(support_rows: np.ndarray, query_rows: np.ndarray) -> np.ndarray:
    """Whether a query's very image came earlier in its stream, as a support or a query: (B, T, Q) bool.

    Small classes make that likely in long streams, and a memory may then know the image rather than the class.
    """
    seen = np.zeros((len(query_rows), int(max(support_rows.max(), query_rows.max())) + 1), dtype=bool)
    before = np.empty(query_rows.shape, dtype=bool)
    for t in range(query_rows.shape[1]):
        before[:, t] = np.take_along_axis(seen, query_rows[:, t], 1)
        np.put_along_axis(seen, support_rows[:, t], True, 1)
        np.put_along_axis(seen, query_rows[:, t], True, 1)
    return before
