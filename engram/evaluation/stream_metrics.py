"""Metrics of streams: what accuracy does with the past. Each is a mean over streams of the mean within a stream.

A stream that has no query in a bin is left out of that bin; ``n`` says how many streams are in. Accuracy by position
is in `engram.evaluation.metrics.summarise`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engram.evaluation.metrics import Outcomes, in_last_quarter, interval, paired_difference

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
