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

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.classifier.calibration import Calibration, scores, stored
from engram.classifier.disk import Turn
from engram.classifier.encoders import PictureEncoder, weights_digest
from engram.errors import EngramError
from engram.evaluation.evaluate import check_prediction
from engram.nn.encoder import folded
from engram.nn.heads import class_means
from engram.nn.view import fit_view
from engram.recipes import Recipe
from engram.types import EmbeddingMethod, Episode, Method, Prediction

TOGETHER = 1024
"""features of queries asked about at once; answers do not depend on it"""
PICTURES_TOGETHER = 64
"""the same where a method sees pictures, or is asked about one query at a time"""
PIXELS_TOGETHER = 16 * 84 * 84
"""of pictures that pass the encoder at once: maps of more (over 32 MB) are fresh pages of the system at every layer"""


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
    calibration: Calibration = Calibration()
    """where temperature and familiarity come from"""


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
    crop: float | None = None
    """share of the short side that the encoder sees of a picture; None: the whole, squeezed"""
    view: bool = False
    """as in `Boxed`"""
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
        together = max(1, PIXELS_TOGETHER // images[0, 0].numel()) if len(images) else 1
        seen = torch.cat([self._eye(part.to(self.device)) for part in images.split(together)]).cpu()
        return seen if self.encoder is None else seen.flatten(1)  # a method may want the maps of its own backbone

    @cached_property
    def _eye(self) -> nn.Module:
        """The encoder as pictures pass it, made for speed."""
        if isinstance(self.encoder, PictureEncoder):
            return self.encoder
        return folded(self.method.backbone if self.encoder is None else self.encoder)

    @cached_property
    def digest(self) -> str:
        """Of all that decides what is kept of a picture; "" where that is no matter of a frozen encoder alone."""
        if self.encoder is None or not self.by_features:
            return ""
        if isinstance(self.encoder, PictureEncoder):
            return self.encoder.digest()
        assert self.encoder_recipe is not None
        recipe = self.encoder_recipe
        said = (recipe.backbone, recipe.backbone_settings, recipe.data.normalisation, self.crop, self.light_ink)
        return weights_digest(self.encoder, *said, self.image_shape)

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
    def answer(
        self,
        support: Tensor,
        labels: Tensor,
        query: Tensor,
        n_way: int,
        samples: int = 0,
        calibration: Calibration | None = None,
    ) -> Answer:
        """support (S, ...) with labels (S,) and query (Q, ...), all as `see` gives them; ``calibration`` is the stored
        one where none is given."""
        sure = calibration or stored(self, len(labels), n_way, len(query))
        if not len(query):
            return Answer(torch.zeros(0, n_way), torch.zeros(samples, 0, n_way), torch.zeros(0), None, sure)
        if self.view:
            look = fit_view(support, labels, n_way)
            support, query = look(support), look(query)
        scores, edges, drawn = self._answers(support, labels, query, n_way, samples)
        tempered = (scores / sure.temperature).log_softmax(-1)
        familiar = tempered.exp().amax(-1)  # where nothing was fitted
        if sure.familiarity is not None:
            slope, offset = sure.familiarity
            familiar = torch.sigmoid(slope * likeness(support, labels, query, n_way).amax(-1) + offset)
        draws = (drawn / sure.temperature).softmax(-1) if drawn is not None else None
        return Answer(tempered, draws, familiar, edges, sure)

    @torch.no_grad()
    def compare(self, support: Tensor, labels: Tensor, query: Tensor, n_way: int) -> tuple[Tensor, Tensor]:
        """`scores` (Q, N) of the method's answers, and the likeness (Q, N) to each class."""
        if self.view:
            look = fit_view(support, labels, n_way)
            support, query = look(support), look(query)
        return self._answers(support, labels, query, n_way)[0], likeness(support, labels, query, n_way)

    def _answers(
        self, support: Tensor, labels: Tensor, query: Tensor, n_way: int, samples: int = 0
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """`scores` (Q, N), edges (L, Q, S), scores of samples (M, Q, N)."""
        together = len(query) if self.transductive else TOGETHER if self.by_features else PICTURES_TOGETHER
        alone = self.method.card.transductive and not self.transductive
        sampling = self._sampling(samples) if samples else None
        found, edges, drawn = [], [], []
        for part in query.split(max(1, PICTURES_TOGETHER if alone else together)):
            episode = _episode(support, labels, part[:, None] if alone else part[None], n_way).to(self.device)
            prediction = self._ask(self.method, episode)
            found.append(scores(prediction).flatten(0, 1).float().cpu())
            edges.append(_query_edges(prediction, len(labels)))
            if sampling is not None:
                drawn.append(scores(self._ask(sampling, episode), each=True).flatten(1, 2).float().cpu())
        return (
            torch.cat(found),
            None if edges[0] is None else torch.cat([part for part in edges if part is not None], 1),
            torch.cat(drawn, 1) if drawn else None,
        )

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
