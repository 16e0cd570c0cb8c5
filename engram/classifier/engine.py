"""What answers behind a classifier: an encoder that sees pictures, and a method of the library that compares them.

A method that looks at pictures only through its backbone is asked with features, so every picture passes the encoder
once and memory holds features; any other method is asked with the pictures themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.classifier.box import fitted_at
from engram.classifier.turns import Turn
from engram.errors import EngramError
from engram.evaluation.evaluate import check_prediction
from engram.nn.encoder import folded
from engram.nn.heads import class_means
from engram.recipes import Recipe
from engram.types import EmbeddingMethod, Episode, Method, Prediction

TOGETHER = 1024
"""features of queries asked about at once; answers do not depend on it"""
PICTURES_TOGETHER = 64
"""the same where a method sees pictures, or is asked about one query at a time"""
IMAGES_TOGETHER = 16
"""pictures that pass the encoder at once: maps of more (over 32 MB) are fresh pages of the system at every layer"""


class Answer(NamedTuple):
    """What an engine says of Q queries, with N classes and S remembered pictures."""

    log_probs: Tensor
    """(Q, N) with the temperature applied"""
    samples: Tensor | None
    """(M, Q, N) probabilities of M draws from the posterior; None where none were asked for"""
    familiarity: Tensor
    """(Q,) probability that a query is of one of the classes at all; where none was fitted, that of its best class"""
    edges: Tensor | None
    """(L, Q, S) probability that query and remembered picture are of one class, layer by layer; None: no graph"""


@dataclass(frozen=True)
class Engine:
    method: Method
    recipe: Recipe
    """of the method"""
    image_shape: tuple[int, ...]
    encoder: nn.Module | None = None
    """None: the method's own backbone"""
    encoder_recipe: Recipe | None = None
    light_ink: bool = False
    """the encoder knows light strokes on dark ground; pictures on light ground are turned into their negative"""
    transductive: bool = False
    temperatures: Mapping[str, list[float]] = field(default_factory=dict)
    """as in `Boxed`, of this method"""
    familiarities: Mapping[str, list[float]] = field(default_factory=dict)
    """as in `Boxed`"""

    @property
    def by_features(self) -> bool:
        kind = type(self.method)
        return (
            isinstance(self.method, EmbeddingMethod)
            and kind.predict is EmbeddingMethod.predict
            and kind.embed is EmbeddingMethod.embed  # type: ignore[attr-defined]
            and self.method.card.batch_norm != "task"
        )

    @property
    def device(self) -> torch.device:
        return next((t.device for t in (*self.method.parameters(), *self.method.buffers())), torch.device("cpu"))

    @torch.no_grad()
    def see(self, images: Tensor) -> Tensor:
        """What is kept of pictures: uint8 (n, C, H, W) -> features (n, ...) float32, or the pictures themselves."""
        if self.light_ink:
            images = on_dark_ground(images)
        if not self.by_features:
            return images
        seen = torch.cat([self._eye(part.to(self.device)) for part in images.split(IMAGES_TOGETHER)]).cpu()
        return seen if self.encoder is None else seen.flatten(1)  # a method may want the maps of its own backbone

    @cached_property
    def _eye(self) -> nn.Module:
        """The encoder as pictures pass it, made for speed."""
        return folded(self.method.backbone if self.encoder is None else self.encoder)

    def check_support(self, counts: Tensor) -> None:
        """Refuse a support the method was not made for; ``counts`` (N,) pictures of each class."""
        card, data, name = self.method.card, self.recipe.data, self.recipe.method
        if card.fixed_ways and len(counts) != data.n_way:
            raise EngramError(f"'{name}' was trained for {data.n_way} classes but there are {len(counts)}: train again")
        if card.fixed_shots and bool((counts != data.n_shot).any()):
            wrong = int(counts[counts != data.n_shot][0])
            raise EngramError(
                f"'{name}' needs {data.n_shot} pictures of every class but one has {wrong}: add or remove pictures"
            )

    @torch.no_grad()
    def answer(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int, samples: int = 0) -> Answer:
        """support (S, ...) with labels (S,) and query (Q, ...), all as `see` gives them."""
        if not len(query):
            return Answer(torch.zeros(0, n_way), torch.zeros(samples, 0, n_way), torch.zeros(0), None)
        together = len(query) if self.transductive else TOGETHER if self.by_features else PICTURES_TOGETHER
        alone = self.method.card.transductive and not self.transductive
        temperature = self.temperature(len(labels) / n_way)
        sampling = self._sampling(samples) if samples else None
        log_probs, edges, drawn = [], [], []
        for part in query.split(max(1, PICTURES_TOGETHER if alone else together)):
            episode = _episode(support, labels, part[:, None] if alone else part[None], n_way).to(self.device)
            prediction = self._ask(self.method, episode)
            log_probs.append(prediction.log_probs.flatten(0, 1).float().cpu())
            edges.append(_query_edges(prediction, len(labels)))
            if sampling is not None:
                drawn.append(self._ask(sampling, episode).details["samples"].flatten(1, 2).float().cpu())
        tempered = (torch.cat(log_probs) / temperature).log_softmax(-1)
        return Answer(
            tempered,
            (torch.cat(drawn, 1).clamp(min=1e-12).log() / temperature).softmax(-1) if samples else None,
            self._familiarity(support, labels, query, tempered),
            None if edges[0] is None else torch.cat([part for part in edges if part is not None], 1),
        )

    def temperature(self, pictures_per_class: float) -> float:
        return fitted_at(self.temperatures, pictures_per_class)[0] if self.temperatures else 1.0

    def _familiarity(self, support: Tensor, labels: Tensor, query: Tensor, log_probs: Tensor) -> Tensor:
        """sigmoid(a s + b), s the largest `likeness`; a and b for the number of pictures at hand."""
        if not (self.by_features and self.familiarities):
            return log_probs.exp().amax(-1)
        n_way = log_probs.shape[1]
        slope, offset = fitted_at(self.familiarities, len(labels) / n_way)
        return torch.sigmoid(slope * likeness(support, labels, query, n_way).amax(-1) + offset)

    def _ask(self, method: Method, episode: Episode) -> Prediction:
        with _seeded(method.card.stochastic):
            prediction: Prediction = (method.classify if self.by_features else method.predict)(episode)  # type: ignore
        check_prediction(prediction, episode, type(method).__name__)
        return prediction

    def _sampling(self, count: int) -> Method:
        """The same method, weights shared, that draws ``count`` samples of its posterior at test."""
        if not samples_posterior(self.method):
            raise EngramError(
                f"'{self.recipe.method}' has no posterior to draw from, so its uncertainty cannot be split: "
                f'use engine="content_memory"'
            )
        method = copy.copy(self.method)
        method.config = replace(method.config, test_samples=count)
        method.card = replace(method.card, stochastic=True)
        return method


def likeness(support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Tensor:
    """Cosine of features with the mean of each class: (S, ...), (S,), (Q, ...) -> (Q, n_way)."""
    means = class_means(support.flatten(1)[None], labels[None], n_way)[0]
    return F.normalize(query.flatten(1), dim=-1) @ F.normalize(means, dim=-1).T


def samples_posterior(method: Method) -> bool:
    """Whether a method can draw from a posterior over its answers."""
    return method.card.samples_key == "test_samples"  # PLATIPUS draws its `samples` when it is built


def on_dark_ground(images: Tensor) -> Tensor:
    """Pictures whose border is lighter than middle grey, as negatives. uint8 (n, C, H, W) -> the same."""
    border = torch.cat([images[..., 0, :], images[..., -1, :], images[..., 0], images[..., -1]], -1)
    light = border.flatten(1).float().mean(1) > 127.5
    return torch.where(light[:, None, None, None], 255 - images, images)


def _episode(support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> Episode:
    """Queries (1, Q, ...) together, or (Q, 1, ...) each alone with the same support."""
    tasks = len(query)
    names = torch.arange(n_way).expand(tasks, -1)
    return Episode(support.expand(tasks, *support.shape), labels.expand(tasks, -1), query, n_way, names)


def _query_edges(prediction: Prediction, n_support: int) -> Tensor | None:
    """(B, L, V, V) edges of all nodes -> (L, B * Q, S) of queries and supports."""
    if "edges" not in prediction.details:
        return None
    edges = prediction.details["edges"][:, :, n_support:, :n_support]
    return edges.transpose(0, 1).flatten(1, 2).float().cpu()


DRAWING = Turn()
"""had while the random state that all threads share is another"""


@contextmanager
def _seeded(stochastic: bool) -> Iterator[None]:
    """The same draws every time; the global random state is left as it was."""
    if not stochastic:
        yield
        return
    with DRAWING, torch.random.fork_rng():
        torch.manual_seed(0)
        yield


class Uncertainty(NamedTuple):
    """Entropies in nats, one number for each picture; ``total`` is the sum of the other two."""

    total: np.ndarray
    """H(mean_m p_m): how open the answer is"""
    epistemic: np.ndarray
    """H(mean_m p_m) - mean_m H(p_m): what the model does not know, which more pictures of the classes would settle"""
    aleatoric: np.ndarray
    """mean_m H(p_m): what the picture itself leaves open"""


def split_entropy(answer: Answer) -> Uncertainty:
    """What a model does not know and what a picture leaves open, from M draws p_m of the posterior, in an `Answer` that
    was asked for them."""
    assert answer.samples is not None
    drawn = answer.samples.double()
    total, aleatoric = _entropy(drawn.mean(0)), _entropy(drawn).mean(0)
    return Uncertainty(total.numpy(), (total - aleatoric).clamp(min=0).numpy(), aleatoric.numpy())


def _entropy(probabilities: Tensor) -> Tensor:
    """H(p) over the last axis, in nats."""
    return torch.special.entr(probabilities).sum(-1)
