import numpy as np
import pytest

from engram.errors import EngramError
from engram.evaluation.metrics import Outcomes, interval, paired_difference, summarise

STUDENT = 2.0930
"""97.5 % quantile of t with 19 degrees of freedom, from a table"""


def outcomes(seed: int = 0, shape: tuple[int, ...] = (20, 3, 4), n_way: int = 5) -> Outcomes:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(n_way), shape).astype(np.float32)
    return Outcomes(rng.integers(0, n_way, shape), probabilities)


def test_metrics_agree_with_slow_loops() -> None:
    given = outcomes()
    metrics = summarise(given)
    hits, nll, brier, bins = [], [], [], [[] for _ in range(15)]
    for s in range(20):
        for t in range(3):
            for q in range(4):
                p, y = given.probabilities[s, t, q].astype(float), given.labels[s, t, q]
                hit = float(p.argmax() == y)
                hits.append(hit)
                nll.append(-np.log(p[y]))
                brier.append(sum((p[c] - (c == y)) ** 2 for c in range(5)))
                bins[min(int(p.max() * 15), 14)].append((p.max(), hit))
    ece = sum(len(b) * abs(np.mean([h for _, h in b]) - np.mean([c for c, _ in b])) for b in bins if b) / len(hits)
    assert metrics["accuracy"] == pytest.approx(np.mean(hits))
    assert metrics["nll"] == pytest.approx(np.mean(nll), rel=1e-5)
    assert metrics["brier"] == pytest.approx(np.mean(brier), rel=1e-5)
    assert metrics["ece"] == pytest.approx(ece, rel=1e-5)
    by_sequence = np.array(hits).reshape(20, -1).mean(1)
    assert metrics["interval"] == pytest.approx(
        2.0930 * by_sequence.std(ddof=1) / np.sqrt(20), rel=1e-4
    )  # t, 19 degrees
    assert metrics["accuracy_by_position"] == pytest.approx(np.array(hits).reshape(20, 3, 4).mean((0, 2)).tolist())


def test_a_constant_answer_scores_one_over_n_whatever_the_labels() -> None:
    labels = np.zeros((10, 1, 5), int)  # an argmax would always hit class 0
    assert summarise(Outcomes(labels, np.full((10, 1, 5, 4), 0.25, np.float32)))["accuracy"] == 0.25


def test_the_interval_covers_the_truth_in_about_95_of_100_draws() -> None:
    rng = np.random.default_rng(1)
    covered = [abs((x := rng.normal(0, 1, 50)).mean()) <= interval(x) for _ in range(2000)]
    assert 0.92 < np.mean(covered) < 0.97


def test_correlated_tasks_of_a_sequence_do_not_narrow_the_interval() -> None:
    """Eight copies of one task are one piece of evidence."""
    single = outcomes(2, (40, 1, 4))
    copies = Outcomes(np.repeat(single.labels, 8, 1), np.repeat(single.probabilities, 8, 1))
    assert summarise(copies)["interval"] == pytest.approx(summarise(single)["interval"])


def test_paired_differences_are_over_sequences() -> None:
    rng = np.random.default_rng(3)
    difficulty = rng.random((50, 1, 1))
    first = (rng.random((50, 2, 10)) < difficulty).astype(float)
    second = first.copy()
    second[:10] = 0
    paired = paired_difference(first, second)
    assert paired["difference"] == pytest.approx((first - second).mean())
    assert paired["n"] == 50
    with pytest.raises(EngramError, match="one has 50 sequences and the other 49"):
        paired_difference(first, second[1:])
