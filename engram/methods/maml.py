"""MAML: Finn, Abbeel & Levine, Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks, ICML 2017.

Learn an initialisation from which a few plain gradient steps on the supports lower the loss of the queries, and
differentiate through those steps. Caveat: the published figures normalise each batch of queries with its own
statistics, at test too (``query_statistics = "queries"``), so queries help each other; the default does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engram.errors import check_within
from engram.nn import adapt
from engram.nn.task_norm import for_tasks, names_of_norms
from engram.types import Episode, History, LossTerms, Method, MethodCard, Prediction, TrainBatch


@dataclass(frozen=True)
class MamlConfig(adapt.LearnerConfig):
    inner_rate: float = 0.05
    """on mean cross-entropy; the paper's 0.01 is on n_way times the mean"""
    inner_steps: int = 5
    test_steps: int = 10
    first_order: bool = False
    """inner gradients as constants: nothing is differentiated twice"""
    tasks_at_once: int = 0
    """tasks differentiated side by side in training; 0 = all (on a CPU large ones singly), fewer take less memory"""


class Maml(Method):
    Config = MamlConfig
    config: MamlConfig
    card = MethodCard(
        title="MAML",
        paper="Finn, Abbeel & Levine, Model-Agnostic Meta-Learning, ICML 2017",
        class_equivariant=False,
        batch_norm="support",
        fixed_ways=True,
        inner_steps_key="inner_steps",
        query_statistics=True,
        departures=(
            "Queries at test. Reference: normalised together, K per class. Ours: each alone with the support set, 15 "
            "and 1 per class; the `_reference` recipes: together, K and 15.",
            "Inner loss. Reference: n_way times the mean, rate 0.01, meta-gradient clipped to 10. Ours: the mean, rate "
            "0.05, which is the same at 5 ways, clipped to 0.133 (1-shot) and 0.667 (5-shot).",
            "Tasks. Reference: a pool of 200,000 drawn once and cycled. Ours: drawn anew at every step.",
            "First weights. Reference: Xavier throughout. Ours: Xavier for the head, the backbone's own for "
            "convolutions.",
            "Tasks per step at 5 shots. Paper: 2. Reference code: 4. Ours: 4.",
            "Short recipes. Paper: 60,000 steps at a constant rate. Ours: 12,000 (`mini_5w1s_short`) or 20,000 "
            "(`mini_5w1s_20k`, weights chosen by 15 validation queries per class) with a cosine schedule.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: MamlConfig) -> None:
        super().__init__(for_tasks(backbone, gain=False), config)
        check_within(config, n_way=2, inner_rate=adapt.RATES, inner_steps=0, test_steps=0, tasks_at_once=0)
        self.head = adapt.linear_head(self.backbone, config.n_way)
        if config.together:
            self.card = self.card.normalising_together()

    def learner(self, n_way: int, steps: int) -> tuple[adapt.Adapted, adapt.Network]:
        """How one task is learned, and the network it is learned by."""
        network, norms = adapt.network(self.backbone, self.head, n_way), names_of_norms(self)
        rates = [self.config.inner_rate] * steps

        def adapted(theta: adapt.Weights, support: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
            """Steps 1 and 2: phi <- phi - alpha dL_S/dphi from theta on, BatchNorm shifts as they are."""
            shifts = {name: theta[name] for name in norms}
            start = {name: weight for name, weight in theta.items() if name not in norms}

            def support_loss(phi: adapt.Weights) -> Tensor:
                return adapt.cross_entropy(network({**shifts, **phi}, support), labels)

            phi, losses = adapt.descend(support_loss, start, rates, self.config.first_order)
            return {**shifts, **phi}, losses

        return adapted, network

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Step 3: mean query loss at phi, differentiated with regard to theta through all inner steps."""
        learner = self.learner(batch.episodes[0].n_way, self.config.inner_steps)
        weights = dict(self.named_parameters())
        return LossTerms(*adapt.query_loss(*learner, weights, batch.tasks(), self.config.tasks_at_once))

    @torch.no_grad()
    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        """At test: more steps, then the queries."""
        learner = self.learner(episode.n_way, self.config.test_steps)
        tasks = episode.support, episode.support_labels, episode.query
        log_probs, losses = adapt.answers(*learner, dict(self.named_parameters()), tasks, self.config.together)
        return Prediction(log_probs, details={"support_losses": losses})
