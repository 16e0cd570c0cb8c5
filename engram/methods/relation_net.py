"""Relation Network: Sung et al., Learning to Compare: Relation Network for Few-Shot Learning, CVPR 2018.

The metric itself is learned: a class's map and a query's map are laid upon each other and a small convolutional network
says in [0, 1] how much they are related, by squared error against 1 (same class) and 0. Caveats: maps of a class are
added, not averaged, so a model belongs to the number of shots it was trained at; and the reference normalises every
test task by its own queries (`statistics = "task"`), which makes each answer depend on the other queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn.backbones.contract import as_map_shape
from engram.nn.backbones.conv import fan_out_normal
from engram.nn.heads import class_sums, one_hot
from engram.nn.task_norm import normalise_by_task, side_by_side
from engram.types import EmbeddingMethod, Episode, History, LossTerms, MethodCard, Prediction, TrainBatch

WIDTH, HIDDEN = 64, 8
ROOM = 10
"""positions a side that two unpadded convolutions with their poolings need"""


@dataclass(frozen=True)
class RelationNetConfig:
    statistics: Literal["running", "task"] = "running"
    """What BatchNorm normalises by: the batch in training and running statistics at test, or, as the reference, always
    the supports, the queries and the pairs of each task by themselves."""


class _RelationHead(nn.Module):
    """conv3x3 - BatchNorm - ReLU - pool twice, then linear - ReLU - linear: one relation score of a pair of maps.

    Maps of less than 10x10 positions are padded and their poolings round up.
    """

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        small = min(height, width) < ROOM

        def finish(inputs: int) -> list[nn.Module]:
            return [nn.BatchNorm2d(inputs), nn.MaxPool2d(2, ceil_mode=small), nn.ReLU(inplace=True)]

        self.first = nn.Conv2d(2 * channels, WIDTH, 3, padding=int(small))
        self.rest = nn.Sequential(
            *finish(WIDTH), nn.Conv2d(WIDTH, WIDTH, 3, padding=int(small)), *finish(WIDTH), nn.Flatten()
        )
        with torch.no_grad():
            probe = self.first(torch.zeros(1, 2 * channels, height, width))
            flat = self.rest.eval()(probe).shape[1]
        self.rest.train().extend([nn.Linear(flat, HIDDEN), nn.ReLU(inplace=True), nn.Linear(HIDDEN, 1)])
        fan_out_normal(self)
        for part in self.rest:
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, 0.0, 0.01)
                nn.init.ones_(part.bias)

    def forward(self, classes: Tensor, queries: Tensor) -> Tensor:
        """Logit of the relation of every pair [class map, query map]: (B, N, C, h, w), (B, Q, C, h, w) -> (B, Q, N).

        The first convolution is linear, so it sees classes and queries apart and pairs are added after it: the same as
        on laid-together maps for a fraction of the work.
        """
        channels, padding = classes.shape[2], self.first.padding
        of_class, of_query = self.first.weight.split(channels, 1)
        seen_classes = F.conv2d(classes.flatten(0, 1), of_class, self.first.bias, padding=padding)
        seen_queries = F.conv2d(queries.flatten(0, 1), of_query, padding=padding)
        shape = (*queries.shape[:2], classes.shape[1])
        pairs = seen_queries.unflatten(0, shape[:2])[:, :, None] + seen_classes.unflatten(0, (-1, shape[2]))[:, None]
        scores: Tensor = self.rest(pairs.flatten(0, 2))
        return scores.view(shape)


class RelationNet(EmbeddingMethod):
    Config = RelationNetConfig
    config: RelationNetConfig
    card = MethodCard(
        title="Relation Net",
        paper="Sung et al., Learning to Compare: Relation Network for Few-Shot Learning, CVPR 2018",
        task_norm_key="statistics",
        departures=(
            "BatchNorm at test. Reference: statistics of the test task's own images, momentum 1. Ours: running "
            'statistics, momentum 0.1; the reference\'s habit with `statistics = "task"`.',
            'Chunks of queries with `statistics = "task"`. Reference: 3 (1-shot) or 5 (5-shot) queries of every class '
            "at a time, which takes their labels. Ours: all queries of a task together; the `_reference` recipes ask 3 "
            "or 5 per class first.",
            'Encoder calls in training with `statistics = "running"`. Reference: supports and queries of one task '
            "apart. Ours: one call for all images of the batch.",
            "Answers. Reference: the class of the highest score. Ours: the same class; as probabilities, scores "
            "divided by their sum.",
            "Small maps. Reference: another padding for Omniglot. Ours: padding where a map has less than 10x10 "
            "positions; a vector counts as one position.",
            "Optimisers. Reference: two, for encoder and head. Ours: one over two groups, clipped apart to norm 0.5, "
            "which is the same arithmetic.",
            "Weights kept. Reference: best validation (1-shot) or test (5-shot) accuracy. Ours: best validation "
            "accuracy (reference preset: test at 5-shot).",
            "`mini_5w1s_short`. Reference: 500,000 steps of one task, 1e-3 halved every 100,000, no augmentation. "
            "Ours: 16 tasks per step, 2e-3 with a cosine that ends with the time box, shifted and mirrored images; the "
            "same in `mini_5w1s_reference_quick`.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: RelationNetConfig) -> None:
        super().__init__(backbone, config)
        self.map_shape = as_map_shape(backbone.out_shape)  # type: ignore[arg-type]
        self.head = _RelationHead(*self.map_shape)
        if config.statistics == "task":
            normalise_by_task(self)
            self.card = self.card.normalising_together()

    def embed(self, episodes: Sequence[Episode]) -> list[Episode]:
        """One call for all images; with statistics = "task", supports and queries apart, each task by itself."""
        if self.config.statistics == "running":
            return super().embed(episodes)
        return [replace(e, support=self._by_task(e.support), query=self._by_task(e.query)) for e in episodes]

    def _by_task(self, images: Tensor) -> Tensor:
        with side_by_side(self.backbone, len(images)):
            features: Tensor = self.backbone(images.flatten(0, 1))
        return features.unflatten(0, images.shape[:2])

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """p(c | x) = r_c / sum of r, r_c = sigmoid of the relation to class c: the order of the scores is kept."""
        return Prediction(F.log_softmax(F.logsigmoid(self._relations(episode)), -1))

    def _relations(self, episode: Episode) -> Tensor:
        """Logits of r for every query and class, from the sum of each class's maps: (B, Q, n_way)"""
        support, query = episode.support.flatten(2), episode.query.flatten(2)
        classes = class_sums(support, episode.support_labels, episode.n_way)
        with side_by_side(self.head, len(query)):
            logits: Tensor = self.head(classes.unflatten(2, self.map_shape), query.unflatten(2, self.map_shape))
        return logits

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Mean over all pairs of (r_qc - [y_q = c])^2."""
        errors, right = [], []
        for episode, answers in zip(self.embed(batch.episodes), batch.answers, strict=True):
            relations, labels = self._relations(episode), answers.query_labels
            errors.append((relations.sigmoid() - one_hot(labels, episode.n_way)).square().mean())
            right.append((relations.argmax(-1) == labels).float().mean())
        error = torch.stack(errors).mean()
        return LossTerms(error, {"squared_error": error.detach(), "accuracy": torch.stack(right).mean()})

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Encoder and head apart: the reference clips the gradient of each by its own norm."""
        return [{"params": list(self.backbone.parameters())}, {"params": list(self.head.parameters())}]
