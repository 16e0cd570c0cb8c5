from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from gaussian_store import gaussian_store
from torch import nn

from engram.errors import EngramError
from engram.evaluation import evaluate as module
from engram.evaluation.evaluate import Result, evaluate
from engram.evaluation.metrics import (
    ENCOUNTER_BINS,
    GAP_BINS,
    Outcomes,
    by_bins,
    in_last_quarter,
    interval,
    paired_difference,
    summarise,
)
from engram.methods import METHODS
from engram.protocol import Protocol
from engram.types import Episode, History, Prediction

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
    stated = [given.probabilities[:, t].max(-1).mean() for t in range(3)]
    assert metrics["confidence_by_position"] == pytest.approx(stated, rel=1e-5)
    alone = [summarise(Outcomes(given.labels[:, [t]], given.probabilities[:, [t]]))["ece"] for t in range(3)]
    assert metrics["ece_by_position"] == pytest.approx(alone)


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


STORE = gaussian_store(n_classes=20, per_class=40)
PROTOCOL = Protocol("gauss", "train", n_query=2, stream_length=24, pool_classes=12, n_sequences=10, names="named")


def answered(protocol: Protocol = PROTOCOL, stem: str = "proto_memory", **settings: int) -> Result:
    method = METHODS[stem](nn.Identity(), METHODS[stem].Config(**settings))
    return evaluate(method, STORE, protocol)


def test_bins_are_means_over_the_streams_that_have_them() -> None:
    correct = np.array([[[1, 0], [1, 1]], [[0, 0], [1, 0]]], float)
    values = np.array([[[0, 0], [1, 6]], [[0, 0], [1, 1]]])
    table = by_bins(correct, values, ENCOUNTER_BINS)
    assert table["bin"] == ["0", "1", "5-8"] and table["n"] == [2, 2, 1]
    assert table["accuracy"] == [0.25, 0.75, 1.0]
    assert table["interval"][0] == pytest.approx(interval(np.array([0.5, 0.0]))) and np.isnan(table["interval"][2])


@pytest.mark.parametrize("bins", [ENCOUNTER_BINS, GAP_BINS])
def test_bins_follow_each_other_without_holes(bins: tuple[tuple[int, int | None], ...]) -> None:
    assert all(most is not None and most + 1 == least for (_, most), (least, _) in pairwise(bins))
    assert bins[-1][1] is None


def test_the_last_quarter_is_rounded_up() -> None:
    lengths = [in_last_quarter(np.zeros((2, steps, 3))).shape[1] for steps in (1, 2, 4, 5, 8, 128)]
    assert lengths == [1, 1, 1, 2, 2, 32]


def test_paired_differences_of_the_last_quarter() -> None:
    first, second = np.ones((6, 8, 3)), np.ones((6, 8, 3))
    second[:3, 6:] = 0
    assert paired_difference(first, second)["difference"] == pytest.approx(0.125)
    assert paired_difference(first, second, last_quarter=True)["difference"] == pytest.approx(0.5)


def test_the_record_of_a_stream_says_what_the_past_was_worth() -> None:
    result = answered()
    stream, outcomes = result.metrics["stream"], result.outcomes
    assert stream["n_streams"] == 10 and stream["last_quarter"] == pytest.approx(outcomes.correct[:, 18:].mean())
    assert stream["last_quarter"] > result.metrics["accuracy_by_position"][0] + 0.1
    assert stream["by_encounters"]["bin"][0] == "0" and stream["by_encounters"]["n"][0] == 10
    never = (outcomes.gaps == -1) == (outcomes.encounters == 0)
    assert never.all() and outcomes.gaps.max() < 24
    expected = np.array([c[e == 0].mean() for c, e in zip(outcomes.correct, outcomes.encounters, strict=True)])
    assert stream["by_encounters"]["accuracy"][0] == pytest.approx(expected.mean())
    assert 0 < stream["last_quarter_met_before"] < 1 and 0 < stream["last_quarter_fresh"] <= 1
    assert "revisit" not in stream
    assert "stream" not in answered(replace(PROTOCOL, stream_length=1)).metrics


@pytest.mark.parametrize("stem", ["knn_memory", "propagation_memory"])
def test_other_memories_climb_along_a_named_stream_too(stem: str) -> None:
    metrics = answered(stem=stem).metrics
    assert metrics["stream"]["last_quarter"] > metrics["accuracy_by_position"][0] + 0.05


def test_a_recurrence_gap_leaves_one_point_on_the_forgetting_curve() -> None:
    stream = answered(replace(PROTOCOL, n_way=3, recurrence_gap=3)).metrics["stream"]
    assert stream["by_gap"]["bin"] == ["3-4"]


def test_a_revisit_asks_the_first_tasks_again_and_is_paired() -> None:
    result = answered(replace(PROTOCOL, revisit=3))
    back = result.metrics["stream"]["revisit"]
    assert back["tasks"] == 3 and back["n"] == 10
    assert back["difference"] == pytest.approx(back["again"] - back["first"]) and back["difference"] > 0.05
    assert back["first"] == pytest.approx(result.outcomes.correct[:, :3].mean())
    forgetful = answered(replace(PROTOCOL, revisit=3), "proto_net").metrics["stream"]["revisit"]
    assert forgetful["difference"] == 0
    assert result.tasks_digest == answered().tasks_digest


class Watched(METHODS["proto_memory"]):  # type: ignore[misc, valid-type]
    """Notes how many images it is given at once and how large its history grows."""

    def predict_sequence(self, episodes: list[Episode], history: History = ()) -> tuple[Prediction, ...]:
        predictions = super().predict_sequence(episodes, history)
        self.images = max(self.images, sum(e.support[..., 0].numel() + e.query[..., 0].numel() for e in episodes))
        self.entries = max(self.entries, predictions[-1].history[0].shape[1])
        return predictions


def test_a_stream_of_a_thousand_tasks_goes_in_pieces_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.MAX_IMAGES, "cpu", 120)
    method = Watched(nn.Identity(), Watched.Config(capacity=9))
    method.images, method.entries = 0, 0
    protocol = replace(PROTOCOL, n_query=1, stream_length=1000, n_sequences=9, drift=0.02)
    result = evaluate(method, STORE, protocol)
    assert method.images <= 120 and method.entries == 9
    assert result.outcomes.correct.shape == (9, 1000, 5)
    stream = result.metrics["stream"]
    assert stream["by_encounters"]["bin"][-1] == "33+" and len(str(stream)) < 2500
