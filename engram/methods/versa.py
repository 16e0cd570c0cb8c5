"""VERSA: Gordon et al., Meta-Learning Probabilistic Inference for Prediction, ICLR 2019.

Small networks turn the mean feature of a class into a Gaussian over the class's weights and bias; the predictive
probabilities, averaged over samples of the logits, are trained directly. Nothing is fitted at test, and ways and shots
may change. Caveat: the published figures normalise the queries of a task by their own statistics (``batch_norm =
"task"``), with one query of every class among them; by default ours are normalised by running statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log, prod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.quasirandom import SobolEngine

from engram.card import REVISIONS
from engram.errors import check_within
from engram.nn.heads import class_means
from engram.nn.task_norm import encode_by_task, normalise_by_task
from engram.types import EmbeddingMethod, Episode, History, MethodCard, Prediction

LARGEST_LOG_VARIANCE = 20.0
EDGE = 1e-12
"""of the unit cube, where the normal quantile is infinite"""


@dataclass(frozen=True)
class VersaConfig:
    samples: int = 10
    """of the logits, drawn anew for every query in training"""
    test_samples: int = 1024
    """of the logits at test, evenly spread: enough for the mean itself, so that evaluation needs no draws"""
    width: int = 256
    """hidden units of the four networks"""
    batch_norm: Literal["running", "task"] = "running"
    """task: supports and queries of a task each by their own statistics, at test too, as the reference does"""
    average: Literal["probabilities", "logits"] = "probabilities"
    """what is averaged over samples at test; logits: the log of their summed exponentials, as the reference does"""


class Posterior(nn.Module):
    """nu -> (mean, log variance) of weights and of bias by four networks d -> w -> w -> out with ELU between."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.weight_mean, self.weight_log_variance = (self._network(inputs, width, inputs) for _ in range(2))
        self.bias_mean, self.bias_log_variance = (self._network(inputs, width, 1) for _ in range(2))

    @staticmethod
    def _network(inputs: int, width: int, outputs: int) -> nn.Sequential:
        layers = [nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, outputs)]
        for layer in layers:
            nn.init.xavier_normal_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-3)
        return nn.Sequential(layers[0], nn.ELU(), layers[1], nn.ELU(), layers[2])

    def forward(self, class_features: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(B, n_way, d) -> weight mean and variance (B, n_way, d), bias mean and variance (B, n_way)"""

        def variance(log_variance: Tensor) -> Tensor:
            return log_variance.clamp(-LARGEST_LOG_VARIANCE, LARGEST_LOG_VARIANCE).exp()

        return (
            self.weight_mean(class_features),
            variance(self.weight_log_variance(class_features)),
            self.bias_mean(class_features)[..., 0],
            variance(self.bias_log_variance(class_features))[..., 0],
        )


class Versa(EmbeddingMethod):
    Config = VersaConfig
    config: VersaConfig
    card = MethodCard(
        title="VERSA",
        paper="Gordon et al., Meta-Learning Probabilistic Inference for Prediction, ICLR 2019",
        task_norm_key="batch_norm",
        samples_key="test_samples",
        departures=(
            "BatchNorm. Reference: statistics of a task's supports and of its queries, each by themselves, at test "
            'too. Ours: those of the batch in training and running averages at test; `batch_norm = "task"` gives the '
            "reference's.",
            "Dropout. Reference: 0.5 in every block. Ours: none with running averages, which would describe "
            'activations that no test has; 0.5 with `batch_norm = "task"`.',
            "Samples at test. Reference: 10, drawn anew. Ours: 1,024 evenly spread, the same at every evaluation: "
            "5-way probabilities are those of endless draws to 0.003 (deviations of logits up to 2) or 0.01 (up to "
            "20).",
            "Answer. Reference: argmax of the summed exponentials of raw logits. Ours: mean probability; `average = "
            '"logits"` gives the reference\'s.',
            "Log variances. Reference: free. Ours: kept within -20 and 20.",
            "Test. Reference: as many queries per class as shots, 600 tasks. Ours: 1 and 15 per class (the reference "
            "recipes K and 15), 10,000 tasks (the shorter recipes: 2,000).",
            "Short recipes. Paper: 50,000 steps of 8 tasks, rate 2.5e-4, dropout 0.5, no augmentation. Ours: 6,000 "
            "steps of 16 tasks (10,000 in the reference form), 1e-3 with a cosine schedule, dropout 0.3, mirrored "
            "crops.",
            "`mini_5w1s_frozen`. Paper: encoder and networks trained together. Ours: the networks alone on a `conv4` "
            "classifier of the base classes, 1,000 steps of 16 tasks at 3e-3; `mini_5w1s_pretrained_short`: `conv5` "
            "from stage one, no dropout, 3,000 steps; `mini_5w1s_reference_distilled`: the same encoder taught by a "
            "ResNet-12 wide, one query per class in training, 8,000 steps at 5e-4; `_16k`: twice as many.",
        ),
        revisions=REVISIONS["versa"],
    )

    def __init__(self, backbone: nn.Module, config: VersaConfig) -> None:
        super().__init__(backbone, config)
        check_within(config, samples=1, test_samples=1, width=1)
        self.posterior = Posterior(prod(backbone.out_shape), config.width)  # type: ignore[arg-type]
        if config.batch_norm == "task":
            normalise_by_task(backbone)
            self.card = self.card.normalising_together()

    def embed(self, episodes: Sequence[Episode]) -> list[Episode]:
        if self.config.batch_norm == "running":
            return super().embed(episodes)
        return [
            replace(e, support=encode_by_task(self.backbone, e.support), query=encode_by_task(self.backbone, e.query))
            for e in episodes
        ]

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """p(c | x) = mean over samples of softmax_c of the logits; the default loss is then the paper's, -log p."""
        mean, variance = self.logits(episode)
        sampled = mean + variance.sqrt() * self._noise(mean)
        log_probs = F.log_softmax(sampled, -1)
        if self.training or self.config.average == "probabilities":
            answer = log_probs.logsumexp(0) - log(len(log_probs))
        else:
            answer = F.log_softmax(sampled.logsumexp(0), -1)
        return Prediction(answer, details={"samples": log_probs.exp()})

    def logits(self, episode: Episode) -> tuple[Tensor, Tensor]:
        """Logits of a query f are Gaussian: mean f.W_c + b_c, variance f^2.V_c + v_c. -> (B, Q, n_way) each"""
        class_features = class_means(episode.support.flatten(2), episode.support_labels, episode.n_way)
        weight, weight_variance, bias, bias_variance = self.posterior(class_features)
        query = episode.query.flatten(2)
        mean = query @ weight.transpose(-1, -2) + bias[:, None]
        return mean, query.square() @ weight_variance.transpose(-1, -2) + bias_variance[:, None]

    def _noise(self, mean: Tensor) -> Tensor:
        """(samples, B, Q, n_way) of N(0, 1): drawn anew in training, evenly spread at test.

        The columns of the spread go to a query's classes by the rank of their mean logits, so that what is left of
        their unevenness knows neither how classes are numbered nor which other queries are asked.
        """
        if self.training:
            return torch.randn(self.config.samples, *mean.shape, device=mean.device, dtype=mean.dtype)
        precise = torch.promote_types(mean.dtype, torch.float32)  # bf16 would blur what is spread so evenly
        table = evenly_spread(self.config.test_samples, mean.shape[-1]).to(mean.device, precise)
        return table[:, mean.argsort(-1).argsort(-1)]


@cache
def evenly_spread(count: int, width: int) -> Tensor:
    """Scrambled Sobol points as samples of N(0, 1): means over them err like 1/count, not 1/sqrt. (count, width)"""
    points = SobolEngine(width, scramble=True, seed=0).draw(count, dtype=torch.float64)
    return torch.special.ndtri(points.clamp(EDGE, 1 - EDGE))
