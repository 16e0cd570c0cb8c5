"""Each probe finds the one fault that was planted for it, and a declared dependence is told from a leak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from gaussian_store import gaussian_store
from torch import Tensor, nn

from engram.nn.heads import class_means, squared_distances
from engram.probes.asking import ALPHA, compare, cyclic_order
from engram.probes.audit import AuditReport, audit
from engram.probes.statistical import half_width
from engram.types import Episode, History, Method, MethodCard, Prediction

STORE = gaussian_store(n_classes=60)
CARD = MethodCard(title="planted", paper="none", batch_norm="none", trainable=False)


@dataclass(frozen=True)
class NoConfig:
    pass


class Planted(Method):
    """Nearest centroid with one fault."""

    Config = NoConfig

    def __init__(self, **claims: Any) -> None:
        super().__init__(nn.Identity(), NoConfig())
        self.card = replace(CARD, **claims)

    def logits(self, episode: Episode, query: Tensor | None = None) -> Tensor:
        means = class_means(episode.support, episode.support_labels, episode.n_way)
        return -squared_distances(episode.query if query is None else query, means)

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        return Prediction(self.logits(episode).log_softmax(-1))


class BySlot(Planted):
    """Query i is guessed to be of class i."""

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        slot = torch.eye(episode.n_way)[torch.arange(episode.query.shape[1]) % episode.n_way]
        return Prediction((self.logits(episode) + 3 * slot).log_softmax(-1))


class FirstSupport(Planted):
    """Only the first support of all shifts the answers."""

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        return Prediction(self.logits(episode, episode.query + 0.1 * episode.support[:, :1]).log_softmax(-1))


class PrefersZero(Planted):
    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        return Prediction((self.logits(episode) + torch.eye(episode.n_way)[0]).log_softmax(-1))


class Balanced(Planted):
    """Assumes equally many queries per class, by Sinkhorn's normalisation."""

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        scores = 3 * self.logits(episode)
        for _ in range(20):
            scores = scores.log_softmax(1).log_softmax(-1)
        return Prediction(scores)


class OverTheBatch(Planted):
    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        centre = episode.support.mean((0, 1))
        return Prediction(self.logits(episode, episode.query - 0.1 * centre).log_softmax(-1))


class Clairvoyant(Planted):
    def predict_sequence(self, episodes: Sequence[Episode], history: History = ()) -> tuple[Prediction, ...]:
        future = torch.stack([e.support.mean(1, keepdim=True) for e in episodes]).flip(0).cumsum(0).flip(0)
        steps = zip(episodes, future, strict=True)
        return tuple(Prediction(self.logits(e, e.query + 1e-3 * f).log_softmax(-1)) for e, f in steps)


class KeepsState(Planted):
    seen = 0

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        self.seen += 1
        return Prediction((self.logits(episode) / self.seen).log_softmax(-1))


class SecretMemory(Planted):
    """Carries the mean support along while its card denies it."""

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        past = history[0] if history else torch.zeros_like(episode.support[:, :1])
        return Prediction(
            self.logits(episode, episode.query + 0.1 * past).log_softmax(-1), (episode.support.mean(1, keepdim=True),)
        )


class Noisy(Planted):
    company = 0.0

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        query = (
            episode.query + 0.1 * torch.randn_like(episode.query) + self.company * episode.query.mean(1, keepdim=True)
        )
        return Prediction(self.logits(episode, query).log_softmax(-1))


class NoisyCompany(Noisy):
    company = 2.0


def quick(method: Method, **changes: Any) -> AuditReport:
    return audit(method, STORE, **{"n_shot": 2, "stream_length": 4, "quick": True, **changes})


@pytest.mark.parametrize(
    ("method", "leaks"),
    [
        (Planted(), set()),
        (BySlot(), {"query order", "query order, all tasks alike", "class relabelling", "company"}),
        (FirstSupport(), {"support order"}),
        (PrefersZero(), {"class relabelling"}),
        (Balanced(), {"company"}),
        (OverTheBatch(), {"other tasks of the batch"}),
        (Clairvoyant(), {"later tasks"}),
        (SecretMemory(), {"history erased", "history foreign"}),
        (Noisy(), {"repeat"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Method) else "",
)
def test_an_undeclared_fault_is_a_leak(method: Method, leaks: set[str]) -> None:
    found = {f.probe for f in quick(method).findings if f.verdict == "leak"}
    # An undeclared sampler moves whatever is asked twice.
    assert leaks <= found if isinstance(method, Noisy) else leaks == found


def test_state_kept_between_calls_is_a_leak() -> None:
    assert quick(KeepsState())["repeat"].verdict == "leak"


@pytest.mark.parametrize(
    ("method", "probe"),
    [
        (FirstSupport(support_order_invariant=False), "support order"),
        (PrefersZero(class_equivariant=False), "class relabelling"),
        (Balanced(transductive=True), "company"),
        (Balanced(batch_norm="task"), "company"),
        (SecretMemory(continual=True), "history erased"),
        (Noisy(stochastic=True), "repeat"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Method) else str(value),
)
def test_a_declared_dependence_is_told_as_such(method: Method, probe: str) -> None:
    report = quick(method)
    assert report[probe].verdict == "declared" and report.verdict == "declared", report.summary


def test_no_claim_excuses_the_slot_or_the_batch() -> None:
    everything = {"transductive": True, "continual": True, "slot_memory": True, "batch_norm": "task"}
    assert quick(BySlot(**everything))["query order"].verdict == "leak"
    assert quick(OverTheBatch(**everything))["other tasks of the batch"].verdict == "leak"


def test_samplers_are_judged_by_the_means_of_their_draws() -> None:
    honest, hidden = quick(Noisy(stochastic=True)), quick(NoisyCompany(stochastic=True))
    assert honest["company"].verdict == "clean" and honest["company"].kind == "statistical"
    assert hidden["company"].verdict == "leak"


def test_noise_in_class_order_catches_a_guess_by_slot_from_the_first_task_on() -> None:
    report = audit(BySlot(), STORE, stream_length=2, n_sequences=40)
    assert report["noise, class order"].verdict == report["class order minus shuffled"].verdict == "leak"
    assert report["noise, shuffled"].verdict == "clean"


def test_a_prior_of_balance_shows_in_accuracy() -> None:
    report = audit(Balanced(transductive=True), STORE, stream_length=1, n_query=3)
    assert report["class balance"].verdict == "declared" and report["class balance"].effect < 0  # type: ignore[operator]


def test_half_widths_are_students() -> None:
    values = np.random.default_rng(0).normal(size=20)
    standard_error = values.std(ddof=1) / np.sqrt(20)
    assert half_width(values) / standard_error == pytest.approx(3.883, abs=0.01)  # t(0.9995; 19), from a table
    many = np.random.default_rng(0).normal(size=(4000, 30))
    alarms = np.mean([abs(row.mean()) > half_width(row) for row in many])
    assert alarms < 4 * ALPHA


def test_the_permutation_test_holds_its_level_and_sees_a_shift() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.rand(2, 12, 50, generator=generator, dtype=torch.float64)
    effect, bound = compare(first, second, 1e-5)
    assert effect < bound
    effect, bound = compare(first, second + 0.8 * (torch.arange(50) == 7), 1e-5)
    assert effect > bound


def test_an_order_leaves_no_slot_in_place() -> None:
    order = cyclic_order(50, 2, torch.Generator().manual_seed(0))
    assert (order == torch.tensor([1, 0])).all()
    assert (cyclic_order(50, 7, torch.Generator().manual_seed(0)) != torch.arange(7)).all()
