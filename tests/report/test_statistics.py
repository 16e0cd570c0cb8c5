"""Intervals against simulation and closed forms: they must hold the truth as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from engram.evaluation.metrics import paired_difference
from engram.report.statistics import difference, estimate, t_quantile


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042), (1e6, 1.96)]
)
def test_t_quantiles_are_those_of_the_tables(freedom: float, value: float) -> None:
    assert t_quantile(freedom) == pytest.approx(value, abs=0.002)
    assert t_quantile(freedom + 0.5) < t_quantile(freedom)


def simulate(
    rng: np.random.Generator, seeds: int, tasks: int, seed_sd: float, task_effect: np.ndarray
) -> list[np.ndarray]:
    return [0.6 + rng.normal(0, seed_sd) + task_effect + rng.normal(0, 0.1, tasks) for _ in range(seeds)]


def test_the_interval_holds_the_truth_and_separates_seeds_from_tasks() -> None:
    rng, inside, deviations, task_widths = np.random.default_rng(0), 0, [], []
    for _ in range(400):
        found = estimate(simulate(rng, 3, 60, 0.03, rng.normal(0, 0.1, 60)))
        inside += abs(found.mean - 0.6) <= found.interval
        assert found.seed_deviation is not None
        deviations.append(found.seed_deviation**2)
        task_widths.append(found.task_interval)
    assert 0.92 <= inside / 400 <= 0.99
    assert np.sqrt(np.mean(deviations)) == pytest.approx(0.03, rel=0.1)
    assert np.mean(task_widths) == pytest.approx(1.96 * 0.1 / np.sqrt(60), rel=0.1)


def test_one_seed_gives_the_interval_over_tasks_and_says_so() -> None:
    values = np.random.default_rng(1).normal(0.5, 0.1, 500)
    found = estimate([values])
    assert found.interval == pytest.approx(1.96 * values.std(ddof=1) / np.sqrt(500), rel=0.01)
    assert found.seed_deviation is None and found.seeds == 1


def test_pairing_removes_what_tasks_share_and_agrees_with_the_bench() -> None:
    rng = np.random.default_rng(2)
    tasks = rng.normal(0, 0.2, 300)
    first, second = ([v + shift for v in simulate(rng, 1, 300, 0.0, tasks)] for shift in (0.03, 0.0))
    paired, unpaired = difference(first, second, True), difference(first, second, False)
    assert paired.interval < 0.6 * unpaired.interval and paired.paired and not unpaired.paired
    oracle = paired_difference(first[0][:, None], second[0][:, None])
    assert paired.mean == pytest.approx(oracle["difference"])
    assert paired.interval == pytest.approx(oracle["interval"], rel=0.01)
    assert paired.word == "clear for this seed"
    assert difference(first, first, True).word == "inside the noise"


def test_a_paired_difference_over_seeds_holds_zero_as_often_as_it_says() -> None:
    rng, false_alarms = np.random.default_rng(3), 0
    for _ in range(400):
        tasks = rng.normal(0, 0.2, 80)
        sides = [simulate(rng, 3, 80, 0.02, tasks) for _ in range(2)]
        false_alarms += difference(*sides, True).word != "inside the noise"
    assert false_alarms / 400 <= 0.08


def test_different_tasks_are_never_paired() -> None:
    rng = np.random.default_rng(4)
    assert not difference([rng.random(30)], [rng.random(20)], True).paired
