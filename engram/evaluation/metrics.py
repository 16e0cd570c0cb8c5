"""Metrics of one evaluation, from per-query outcomes; intervals are over independent sequences.

Those of streams tell what accuracy does with the past: each is a mean over streams of the mean within a stream. A
stream that has no query in a bin is left out of that bin; ``n`` says how many streams are in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engram.errors import EngramError

N_BINS = 15
NORMAL = 1.959964
T_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060)
"""97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom"""


@dataclass(frozen=True)
class Outcomes:
    """What a model said, query by query; arrays are (sequences, steps, queries) unless stated."""

    labels: np.ndarray
    probabilities: np.ndarray
    """(sequences, steps, queries, n_way) float32"""
    edge_accuracy: np.ndarray | None = None
    """(sequences, steps) share of query-support edges on the right side of 0.5"""
    query_pairs: np.ndarray | None = None
    """(sequences, steps, 2) mean edge of two queries of one class, and of two classes; nan where there is no pair"""
    encounters: np.ndarray | None = None
    """earlier tasks of the stream with the query's class"""
    gaps: np.ndarray | None = None
    """steps since the last of them, -1 where there is none"""
    met_before: np.ndarray | None = None
    """whether the query's very image, or its original in a store of variants, came earlier in the stream"""
    again: np.ndarray | None = None
    """(sequences, tasks, queries, n_way) answers to the first tasks, asked again after the stream"""

    @property
    def correct(self) -> np.ndarray:
        """0/1, with a tie counted as its share: a constant answer scores exactly 1 / n_way, not an argmax's habit."""
        best = self.probabilities == self.probabilities.max(-1, keepdims=True)
        hit = np.take_along_axis(best, self.labels[..., None], -1)[..., 0]
        return hit / best.sum(-1)


def interval(values: np.ndarray) -> float:
    """Half-width of the 95 % interval of a mean over n independent values: t s / sqrt(n), t with n - 1 degrees."""
    n = len(values)
    return float(t_quantile(n - 1) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def t_quantile(freedom: float) -> float:
    """97.5 % quantile of Student's t: a table up to 8, linear in 1/f between entries, then Cornish and Fisher's."""
    if freedom >= len(T_QUANTILES):
        z = NORMAL
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + first / freedom + second / freedom**2 + third / freedom**3
    places = 1 / np.arange(len(T_QUANTILES), 0, -1)
    return float(np.interp(1 / max(1.0, freedom), places, T_QUANTILES[::-1]))


def summarise(outcomes: Outcomes) -> dict[str, Any]:
    """All metrics of an evaluation, ready for the run record."""
    correct = outcomes.correct
    by_task = correct.mean(-1)
    truth = np.take_along_axis(outcomes.probabilities, outcomes.labels[..., None], -1)[..., 0].astype(np.float64)
    confidence = outcomes.probabilities.max(-1)
    reliability = reliability_bins(confidence, correct)
    return {
        "accuracy": float(by_task.mean()),
        "interval": interval(by_task.mean(1)),
        "accuracy_by_position": by_task.mean(0).tolist(),
        "interval_by_position": [interval(column) for column in by_task.T],
        "confidence_by_position": confidence.mean((0, 2), dtype=np.float64).tolist(),
        "ece_by_position": [
            expected_calibration_error(reliability_bins(confidence[:, t], correct[:, t]))
            for t in range(by_task.shape[1])
        ],
        "nll": float(-np.log(truth.clip(1e-12)).mean()),
        "brier": float(brier_score(outcomes)),
        "ece": expected_calibration_error(reliability),
        "reliability": reliability,
        "edge_accuracy": None if outcomes.edge_accuracy is None else float(outcomes.edge_accuracy.mean()),
        "query_pairs": None if outcomes.query_pairs is None else pair_means(outcomes.query_pairs),
        "n_sequences": len(by_task),
        "n_tasks": by_task.size,
        "n_queries": correct.size,
    }


def pair_means(query_pairs: np.ndarray) -> dict[str, float | None]:
    """Mean edge of two queries of the same class and of different classes, over the tasks that have such a pair."""
    kinds = (column[~np.isnan(column)] for column in query_pairs.reshape(-1, 2).T)
    return {
        name: float(found.mean()) if len(found) else None
        for name, found in zip(("same", "different"), kinds, strict=True)
    }


def brier_score(outcomes: Outcomes) -> float:
    """Mean of sum_c (p_c - 1[y = c])^2."""
    target = np.eye(outcomes.probabilities.shape[-1], dtype=np.float32)[outcomes.labels]
    return float(np.square(outcomes.probabilities - target).sum(-1).mean())


def reliability_bins(confidence: np.ndarray, correct: np.ndarray) -> dict[str, list[float | None]]:
    """Mean confidence, accuracy and share of the queries in 15 equal bins of confidence; None where a bin is empty."""
    index = np.minimum((confidence.ravel() * N_BINS).astype(int), N_BINS - 1)
    counts = np.bincount(index, minlength=N_BINS)

    def mean_of(values: np.ndarray) -> list[float | None]:
        sums = np.bincount(index, weights=values.ravel().astype(np.float64), minlength=N_BINS)
        return [float(s / n) if n else None for s, n in zip(sums, counts, strict=True)]

    weight: list[float | None] = [float(n / counts.sum()) for n in counts]
    return {"confidence": mean_of(confidence), "accuracy": mean_of(correct), "weight": weight}


def expected_calibration_error(reliability: dict[str, list[float | None]]) -> float:
    """ECE = sum over bins of share * |accuracy - confidence|."""
    rows = zip(reliability["confidence"], reliability["accuracy"], reliability["weight"], strict=True)
    return float(sum(w * abs(a - c) for c, a, w in rows if c is not None and a is not None and w is not None))


def in_last_quarter(values: np.ndarray) -> np.ndarray:
    """The last quarter of the positions of a stream, rounded up: (sequences, steps, ...) -> (sequences, fewer, ...)."""
    return values[:, values.shape[1] * 3 // 4 :]


def paired_difference(first: np.ndarray, second: np.ndarray, *, last_quarter: bool = False) -> dict[str, float]:
    """Mean of first - second over sequences that answered the same tasks, with its 95 % interval.

    Arrays are (sequences, steps, ...) correctness; both must come from the same frozen tasks. ``last_quarter`` compares
    the last quarter of the positions alone.
    """
    if first.shape[0] != second.shape[0]:
        raise EngramError(
            f"paired runs need the same tasks but one has {len(first)} sequences and the other {len(second)}"
        )
    if last_quarter:
        first, second = in_last_quarter(first), in_last_quarter(second)
    difference = first.reshape(len(first), -1).mean(1) - second.reshape(len(second), -1).mean(1)
    return {"difference": float(difference.mean()), "interval": interval(difference), "n": len(difference)}


ENCOUNTER_BINS = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 8), (9, 16), (17, 32), (33, None))
GAP_BINS = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, None))
Bins = tuple[tuple[int, int | None], ...]


def stream_summary(outcomes: Outcomes) -> dict[str, Any]:
    """The ``stream`` part of a record's metrics; needs `Outcomes.encounters` and `Outcomes.gaps`."""
    assert outcomes.encounters is not None and outcomes.gaps is not None
    correct = outcomes.correct
    late = in_last_quarter(correct).mean((1, 2))
    summary: dict[str, Any] = {
        "last_quarter": float(late.mean()),
        "last_quarter_interval": interval(late),
        "by_encounters": by_bins(correct, outcomes.encounters, ENCOUNTER_BINS),
        "by_gap": by_bins(correct, outcomes.gaps, GAP_BINS),
        "n_streams": len(correct),
    }
    if outcomes.met_before is not None:
        summary |= met_before_summary(in_last_quarter(correct), in_last_quarter(outcomes.met_before))
    if outcomes.again is not None:
        summary["revisit"] = backward_transfer(outcomes)
    return summary


def by_bins(correct: np.ndarray, values: np.ndarray, bins: Bins) -> dict[str, list[Any]]:
    """Accuracy of the queries whose value lies in each bin, ends included; bins that no stream has are left out.

    Shapes: correct and values (streams, steps, queries) -> lists ``bin``, ``accuracy``, ``interval``, ``n``
    """
    table: dict[str, list[Any]] = {"bin": [], "accuracy": [], "interval": [], "n": []}
    for least, most in bins:
        inside = (values >= least) & (values <= (np.inf if most is None else most))
        means = stream_means(correct, inside)
        if len(means):
            name = f"{least}+" if most is None else str(least) if least == most else f"{least}-{most}"
            for key, value in zip(table, (name, float(means.mean()), interval(means), len(means)), strict=True):
                table[key].append(value)
    return table


def stream_means(correct: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Mean over the chosen queries of each stream that has any: (streams, ...), same bool -> (streams with any,)."""
    counts = inside.reshape(len(inside), -1).sum(1)
    sums = (correct * inside).reshape(len(correct), -1).sum(1)
    return sums[counts > 0] / counts[counts > 0]


def met_before_summary(correct: np.ndarray, met: np.ndarray) -> dict[str, Any]:
    """Share of late queries whose very image came earlier in the stream, and late accuracy on the others."""
    fresh = stream_means(correct, ~met)
    return {
        "last_quarter_met_before": float(met.mean()),
        "last_quarter_fresh": float(fresh.mean()) if len(fresh) else None,
        "last_quarter_fresh_interval": interval(fresh),
    }


def backward_transfer(outcomes: Outcomes) -> dict[str, Any]:
    """The first tasks asked again at the end, minus the first time: below 0 the stream made the model forget them."""
    assert outcomes.again is not None
    tasks = outcomes.again.shape[1]
    first = outcomes.correct[:, :tasks]
    again = Outcomes(outcomes.labels[:, :tasks], outcomes.again).correct
    means = {"first": float(first.mean()), "again": float(again.mean())}
    return {"tasks": tasks, **means, **paired_difference(again, first)}
