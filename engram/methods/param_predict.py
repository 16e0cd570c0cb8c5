"""Param_Predict: Qiao et al., Few-Shot Image Recognition by Predicting Parameters from Activations, CVPR 2018.

In a trained classifier the weights of a class resemble the mean activation of its images. One map, the same for every
class, turns an activation into a class's weights; it is learnt on the base classes and applied to new ones. Caveat: the
encoder is that of stage one and stays frozen; the published figures train on train and validation classes together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import check_settings, check_within
from engram.nn.heads import class_means
from engram.types import Answers, EmbeddingMethod, Episode, History, LossTerms, MethodCard, Prediction, TrainBatch

MOMENTUM = 0.01
"""least share of a new batch in a class's mean activation"""


@dataclass(frozen=True)
class ParamPredictConfig:
    n_base_classes: int = 64
    """classes whose mean activation is followed; at least the classes of the training split"""
    mean_share: float = 0.3
    """how often a class is stated by the mean activation of all its images, else by the task's supports"""
    activation: Literal["relu", "none"] = "relu"
    """between the two layers; none for encoders whose features may be negative, else the start is not the identity"""


class ActivationMap(nn.Module):
    """phi(a) = n( W2 relu( W1 n(a) + b1 ) + b2 ), both layers starting as the identity: (..., d) -> (..., d)"""

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.activation = nn.ReLU() if activation == "relu" else nn.Identity()
        for layer in (self.first, self.second):
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, activations: Tensor) -> Tensor:
        return F.normalize(self.second(self.activation(self.first(F.normalize(activations, dim=-1)))), dim=-1)


class ParamPredict(EmbeddingMethod):
    Config = ParamPredictConfig
    config: ParamPredictConfig
    card = MethodCard(
        title="Param_Predict",
        paper="Qiao et al., Few-Shot Image Recognition by Predicting Parameters from Activations, CVPR 2018",
        base_classes=True,
        departures=(
            "Classes. Paper: encoder and map learn from train and validation classes (80), so no step can be chosen on "
            "them. Ours: from train alone (64), and validation chooses the weights.",
            "Class means. Paper: of stored activations. Ours: followed over the images of the tasks (plain average, "
            "later at least 1 % of it new) and saved with the weights.",
            "Encoder. Paper: WRN-28-10 at 80x80 with 80 first channels and zero-padded shortcuts, 300 epochs on images "
            "cut from full-size pictures. Ours: the recipe's, WRN-28-10 at 84x84 and its stage one.",
            "Test. Paper: all other images of the classes are queries, 1,000 tasks; the released 5-shot loop also "
            "scores one support per class. Ours: 15 queries per class, 10,000 tasks, no support among them.",
            "`mini_5w1s_short`. Paper: 12,500 steps of one task, constant rate. Ours: ResNet-12 wide, 3,000 steps of "
            "four tasks, a cosine schedule.",
        ),
    )
    mean_activation: Tensor
    images_seen: Tensor

    def __init__(self, backbone: nn.Module, config: ParamPredictConfig) -> None:
        super().__init__(backbone, config)
        check_within(config, n_base_classes=2)
        check_settings(config, ("mean_share", 0 <= config.mean_share <= 1, "it lies from 0 to 1"))
        width = prod(backbone.out_shape)  # type: ignore[arg-type]
        self.predict_weights = ActivationMap(width, config.activation)
        self.register_buffer("mean_activation", torch.zeros(config.n_base_classes, width))
        self.register_buffer("images_seen", torch.zeros(config.n_base_classes, 1))

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """log p(c | x) = log softmax_c <phi(a_c), f(x)>, a_c the mean activation of the supports of c."""
        statistics = class_means(episode.support.flatten(2), episode.support_labels, episode.n_way)
        return Prediction(self._log_probs(episode, statistics))

    def _log_probs(self, episode: Episode, statistics: Tensor) -> Tensor:
        """The length of f(x) is not taken out: it is the temperature."""
        weights = self.predict_weights(statistics)
        return F.log_softmax(episode.query.flatten(2) @ weights.transpose(-1, -2), -1)

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Cross-entropy over the task's classes, each stated by its mean activation or by its supports, as drawn."""
        log_probs, episodes = [], self.embed(batch.episodes)
        for episode, answers in zip(episodes, batch.answers, strict=True):
            self._follow(episode, answers)
            statistics = class_means(episode.support.flatten(2), episode.support_labels, episode.n_way)
            by_mean = torch.rand(answers.class_ids.shape, device=statistics.device) < self.config.mean_share
            means = self.mean_activation[answers.class_ids]
            log_probs.append(self._log_probs(episode, torch.where(by_mean[..., None], means, statistics)))
        labels = torch.stack([a.query_labels for a in batch.answers])
        stacked = torch.stack(log_probs)
        nll = -stacked.gather(-1, labels[..., None]).mean()
        return LossTerms(nll, {"nll": nll.detach(), "accuracy": (stacked.argmax(-1) == labels).float().mean()})

    @torch.no_grad()
    def _follow(self, episode: Episode, answers: Answers) -> None:
        """Mean activation of every base class over the images seen so far; the old count for less and less."""
        if not self.training:
            return
        labels = torch.cat([episode.support_labels, answers.query_labels], 1)
        ids = answers.class_ids.gather(1, labels).flatten()
        features = torch.cat([episode.support.flatten(2), episode.query.flatten(2)], 1).flatten(0, 1)
        counts = torch.zeros_like(self.images_seen).index_add(0, ids, torch.ones_like(features[:, :1]))
        sums = torch.zeros_like(self.mean_activation).index_add(0, ids, features)
        self.images_seen += counts
        share = (counts / self.images_seen.clamp(min=1)).clamp(min=MOMENTUM) * (counts > 0)
        self.mean_activation.lerp_(sums / counts.clamp(min=1), share)
