"""Means over seeds and tasks with the two kinds of variance kept apart, and paired differences on frozen tasks.

Values are y[s, i]: the accuracy of seed s on sequence i, y = mean + seed effect + task effect + rest. All seeds answer
the same sequences, so the variance of the grand mean over S seeds and n sequences is

    V = var(seed means) / S + var(task means) / n - var(rest) / (n S),

as both spreads hold the rest once. Intervals are 95 %, with Student's t at Satterthwaite's degrees of freedom: with
three seeds a difference has to be large before it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from engram.evaluation.metrics import t_quantile
from engram.report.table import points

Seeds = Sequence[np.ndarray]
"""for each seed the accuracies (n,) on the same sequences"""


@dataclass(frozen=True)
class Estimate:
    """Fractions of 1."""

    mean: float
    interval: float
    """half-width over tasks and, with two seeds or more, over seeds"""
    task_interval: float
    """the part of the tasks alone: what more test tasks would shrink"""
    seed_deviation: float | None
    """standard deviation of a seed's effect; None with one seed"""
    seeds: int
    sequences: int


@dataclass(frozen=True)
class Difference:
    mean: float
    interval: float
    paired: bool
    """both answered the same tasks"""
    seeds: int
    """the smaller number of seeds of the two; with 1 the interval does not hold what another seed would change"""

    @property
    def word(self) -> str:
        if not abs(self.mean) > self.interval:  # nan is inside the noise too
            return "inside the noise"
        return "clear" if self.seeds > 1 else "clear for this seed"

    @property
    def points(self) -> str:
        return points(self.mean, self.interval)


def estimate(values: Seeds) -> Estimate:
    """Mean over seeds and sequences with its interval."""
    if len(values) == 1:
        mean, tasks = float(values[0].mean()), _square_error(values[0])
        width = t_quantile(len(values[0]) - 1) * sqrt(tasks)
        return Estimate(mean, width, width, None, 1, len(values[0]))
    parts = _Parts.of(values)
    variance = parts.seeds + parts.tasks
    deviation = sqrt(max(0.0, parts.seeds * len(values) - parts.rest * len(values)))
    return Estimate(
        float(np.mean([v.mean() for v in values])),
        t_quantile(parts.freedom) * sqrt(variance),
        t_quantile(parts.task_freedom) * sqrt(parts.tasks),
        deviation,
        len(values),
        len(values[0]),
    )


def difference(first: Seeds, second: Seeds, paired: bool) -> Difference:
    """First minus second; on the same tasks the task part is that of the difference, task by task."""
    mean = float(np.mean([v.mean() for v in first]) - np.mean([v.mean() for v in second]))
    seeds = min(len(first), len(second))
    if not paired or len(first[0]) != len(second[0]):
        widths = [estimate(values).interval for values in (first, second)]
        return Difference(mean, sqrt(widths[0] ** 2 + widths[1] ** 2), False, seeds)
    by_task = np.mean(first, axis=0) - np.mean(second, axis=0)
    sides = [_Parts.of(values) for values in (first, second) if len(values) > 1]
    tasks = max(0.0, _square_error(by_task) - sum(side.rest for side in sides))
    between = sum(side.seeds for side in sides)
    spread = sum(side.seeds**2 / side.seed_freedom for side in sides) + tasks**2 / (len(by_task) - 1)
    freedom = (tasks + between) ** 2 / spread if spread > 0 else float("inf")
    return Difference(mean, t_quantile(freedom) * sqrt(tasks + between), True, seeds)


def spread_ratio_is_clear(larger: float, smaller: float, larger_seeds: int, smaller_seeds: int) -> bool:
    """Whether two standard deviations over seeds differ: the F test at 97.5 %, its quantile by simulation.

    With three seeds each the larger variance must be 39 times the smaller one.
    """
    draws = np.random.default_rng(0).f(larger_seeds - 1, smaller_seeds - 1, 400_000)
    return bool(larger**2 > float(np.quantile(draws, 0.975)) * smaller**2)


def _square_error(values: np.ndarray) -> float:
    """var / n; infinite for a single value, which tells nothing of its spread."""
    return float(values.var(ddof=1) / len(values)) if len(values) > 1 else float("inf")


@dataclass(frozen=True)
class _Parts:
    """The two-way analysis of variance of (S, n) values, each part as a variance of the grand mean."""

    seeds: float
    tasks: float
    rest: float
    seed_freedom: int
    task_freedom: int

    @classmethod
    def of(cls, values: Seeds) -> _Parts:
        table = np.stack(values)
        n_seeds, n_tasks = table.shape
        by_seed, by_task = table.mean(1), table.mean(0)
        residual = table - by_seed[:, None] - by_task + table.mean()
        rest = float((residual**2).sum() / max(1, (n_seeds - 1) * (n_tasks - 1))) / table.size
        tasks = max(0.0, _square_error(by_task) - rest)
        return cls(_square_error(by_seed), tasks, rest, n_seeds - 1, n_tasks - 1)

    @property
    def freedom(self) -> float:
        """Satterthwaite's: close to the seeds' where seeds make the spread, to the tasks' where tasks do."""
        spread = self.seeds**2 / self.seed_freedom + self.tasks**2 / self.task_freedom
        return (self.seeds + self.tasks) ** 2 / spread if spread > 0 else float("inf")
