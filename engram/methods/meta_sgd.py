"""Meta-SGD: Li, Zhou, Chen & Li, Meta-SGD: Learning to Learn Quickly for Few-Shot Learning, 2017.

MAML with a single inner step whose step size is learnt for every number of every weight: initialisation, step sizes
and, through their signs, the direction of the update come together. Caveat: the published figures are taken to
normalise each batch of queries with its own statistics as MAML's do (``query_statistics = "queries"``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engram.errors import check_within
from engram.nn import adapt
from engram.nn.task_norm import for_tasks
from engram.types import Episode, History, LossTerms, Method, MethodCard, Prediction, TrainBatch


@dataclass(frozen=True)
class MetaSgdConfig(adapt.LearnerConfig):
    initial_rate: float = 0.05
    """of every step size, on mean cross-entropy: where MAML's inner rate stands"""
    tasks_at_once: int = 0
    """tasks differentiated side by side in training; 0 = all (on a CPU large ones singly), fewer take less memory"""


class MetaSgd(Method):
    Config = MetaSgdConfig
    config: MetaSgdConfig
    card = MethodCard(
        title="Meta-SGD",
        paper="Li, Zhou, Chen & Li, Meta-SGD: Learning to Learn Quickly for Few-Shot Learning, 2017",
        class_equivariant=False,
        batch_norm="support",
        fixed_ways=True,
        query_statistics=True,
        departures=(
            "Queries at test. Paper: normalised together (assumed, as in MAML). Ours: each alone with the support set; "
            "the `_reference` recipes: together.",
            "Step sizes at the start. Paper: random in [0.005, 0.1] (from its regression section). Ours: 0.05 "
            "throughout, where MAML's rate stands.",
            "Losses. Paper: summed over tasks. Ours: their mean, which is the same under Adam; clipped by value as "
            "MAML's.",
            "Short recipes. Paper: 60,000 steps. Ours: 12,000 with a cosine schedule.",
            "`mini_5w1s_reference_pretrained`. Paper: from scratch, 15 queries per class in training. Ours: from a "
            "stage one of the same convolutions, 3 queries per class, 14,000 steps with a cosine schedule, a moving "
            "average of the weights. `mini_5w5s_reference_from_1shot`: from its encoder and head, 4,000 steps at half "
            "the rate.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: MetaSgdConfig) -> None:
        super().__init__(for_tasks(backbone, gain=False), config)
        check_within(config, n_way=2, initial_rate=adapt.RATES, tasks_at_once=0)
        self.head = adapt.linear_head(self.backbone, config.n_way)
        if config.together:
            self.card = self.card.normalising_together()
        initial = {name: torch.full_like(p, config.initial_rate) for name, p in self.named_parameters()}
        self.names = tuple(initial)
        self.rates = nn.ParameterList(initial.values())  # in the order of names; they may turn negative

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Step sizes are never decayed."""
        learner = [p for name, p in self.named_parameters() if name in self.names and p.requires_grad]
        return [{"params": learner}, {"params": list(self.rates), "weight_decay": 0.0}]

    def learner(self, n_way: int) -> tuple[adapt.Adapted, adapt.Network]:
        """How one task is learned, and the network it is learned by."""
        network = adapt.network(self.backbone, self.head, n_way)

        def adapted(meta: adapt.Weights, support: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
            """Step 1: phi = theta - alpha o dL_S/dtheta."""
            theta = {name: meta[name] for name in self.names}
            alpha = {name: meta[f"rates.{index}"] for index, name in enumerate(self.names)}
            return adapt.descend(lambda w: adapt.cross_entropy(network(w, support), labels), theta, [alpha])

        return adapted, network

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Step 2: mean query loss at phi, differentiated with regard to theta and alpha."""
        learner, meta = self.learner(batch.episodes[0].n_way), dict(self.named_parameters())
        return LossTerms(*adapt.query_loss(*learner, meta, batch.tasks(), self.config.tasks_at_once))

    @torch.no_grad()
    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        """The same single step, then the queries."""
        learner, tasks = self.learner(episode.n_way), (episode.support, episode.support_labels, episode.query)
        log_probs, losses = adapt.answers(*learner, dict(self.named_parameters()), tasks, self.config.together)
        return Prediction(log_probs, details={"support_losses": losses})
