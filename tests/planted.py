"""Nearest centroids, each with one fault that a probe must find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from gaussian_store import gaussian_store
from torch import Tensor, nn

from engram.nn.heads import class_means, squared_distances
from engram.probes.audit import AuditReport, audit
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
