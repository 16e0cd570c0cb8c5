"""PLATIPUS: Finn, Xu & Levine, Probabilistic Model-Agnostic Meta-Learning, NeurIPS 2018.

A Gaussian over MAML's initialisation. In training an inference step on the queries proposes initialisations, and a
prior step on the supports is pulled towards it; at test initialisations are drawn from the prior and each is adapted.
Caveat: query labels enter the training loss alone, never an answer; and the published figure is taken to normalise
each batch of queries with its own statistics as MAML's do (``query_statistics = "queries"``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import grad

from engram.errors import check_settings, check_within
from engram.nn import adapt
from engram.nn.task_norm import for_tasks, names_of_norms
from engram.types import Episode, History, LossTerms, Method, MethodCard, Prediction, TrainBatch

OWN = ("log_prior", "log_posterior", "prior_rate", "posterior_rate")
"""meta-parameters beside mu"""


@dataclass(frozen=True)
class PlatipusConfig(adapt.LearnerConfig):
    inner_rate: float = 0.05
    """on mean cross-entropy; MAML's 0.01 is on n_way times the mean"""
    inner_steps: int = 5
    samples: int = 10
    """initialisations drawn at test; the draws are fixed, so that evaluation repeats"""
    kl_weight: float = 0.01
    initial_deviation: float = 0.018
    """standard deviation of prior and posterior at the start, exp(-4)"""
    initial_step: float = 0.001
    """of the single steps that give the two means, learnt from there; the KL term grows with its square"""
    tasks_at_once: int = 0
    """tasks differentiated side by side in training; 0 = all (on a CPU large ones singly), fewer take less memory"""


class Platipus(Method):
    Config = PlatipusConfig
    config: PlatipusConfig
    card = MethodCard(
        title="PLATIPUS",
        paper="Finn, Xu & Levine, Probabilistic Model-Agnostic Meta-Learning, NeurIPS 2018",
        class_equivariant=False,
        batch_norm="support",
        fixed_ways=True,
        samples_key="samples",
        inner_steps_key="inner_steps",
        query_statistics=True,
        departures=(
            "Queries at test. Paper: normalised together (assumed, as in MAML). Ours: each alone with the support set; "
            "the `_reference` recipes: together.",
            "Samples at test. Paper: drawn anew, number not known. Ours: 10 draws fixed by a seed, the same for all "
            "tasks, so that evaluation repeats.",
            "Weight of the KL term. Paper: not known; a public re-implementation has 1e-6 to 0.1. Ours: 0.01, about "
            "one over the number of queries.",
            "Clipping. Paper: not known. Ours: global norm 10.",
            "`mini_5w1s_short`. Paper: 60,000 steps. Ours: 3,000 with a cosine schedule, gradients clipped by value, "
            "`initial_step = 0.001` and `inner_rate = 0.01`.",
            "`mini_5w1s_reference_from_meta_sgd`. Paper: from scratch, 15 queries per class in training. Ours: from "
            "Meta-SGD's encoder, 3 queries per class, 8,000 steps with a cosine schedule, a moving average. "
            "`_with_head`: from its head too, a first deviation of 0.005, half the rate, 14,000 steps.",
        ),
    )
    draws: Tensor

    def __init__(self, backbone: nn.Module, config: PlatipusConfig) -> None:
        super().__init__(for_tasks(backbone, gain=False), config)
        check_within(config, n_way=2, inner_steps=0, samples=1, kl_weight=0, tasks_at_once=0)
        check_within(config, inner_rate=adapt.RATES, initial_step=(0, adapt.RATES[1]))
        check_settings(config, ("initial_deviation", config.initial_deviation > 0, "it must be above 0"))
        self.head = adapt.linear_head(self.backbone, config.n_way)
        if config.together:
            self.card = self.card.normalising_together()
        size = sum(p.numel() for p in self.parameters())
        self.log_prior = nn.Parameter(torch.full((size,), 2 * math.log(config.initial_deviation)))
        self.log_posterior = nn.Parameter(self.log_prior.detach().clone())
        self.prior_rate = nn.Parameter(torch.tensor(config.initial_step))
        self.posterior_rate = nn.Parameter(torch.tensor(config.initial_step))
        fixed = torch.randn(config.samples, size, generator=torch.Generator().manual_seed(0))
        self.register_buffer("draws", fixed, persistent=False)

    def mean(self, network: adapt.Network, meta: adapt.Weights, rate: str, images: Tensor, labels: Tensor) -> Tensor:
        """mu - gamma dL/dmu, one step on the images given: (P,)"""
        mu = {name: weight for name, weight in meta.items() if name not in OWN}
        gradients = grad(lambda w: adapt.cross_entropy(network(w, images), labels))(mu)
        return adapt.flat(mu) - meta[rate] * adapt.flat(gradients)

    def adapted(
        self, network: adapt.Network, meta: adapt.Weights, theta: Tensor, support: Tensor, labels: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Step 2: MAML's inner steps from an initialisation theta (P,), BatchNorm shifts as they are."""
        start = adapt.shaped(theta, {name: weight for name, weight in meta.items() if name not in OWN})
        shifts = {name: start.pop(name) for name in names_of_norms(self)}

        def support_loss(phi: adapt.Weights) -> Tensor:
            return adapt.cross_entropy(network({**shifts, **phi}, support), labels)

        phi, losses = adapt.descend(support_loss, start, [self.config.inner_rate] * self.config.inner_steps)
        return {**shifts, **phi}, losses

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Steps 1 to 4; everything is differentiated, the two means too."""
        network = adapt.network(self.backbone, self.head, batch.episodes[0].n_way)

        def task_loss(
            meta: adapt.Weights, support: Tensor, labels: Tensor, query: Tensor, query_labels: Tensor, noise: Tensor
        ) -> tuple[Tensor, tuple[Tensor, ...]]:
            posterior = self.mean(network, meta, "posterior_rate", query, query_labels)
            theta = posterior + (meta["log_posterior"] / 2).exp() * noise
            phi, losses = self.adapted(network, meta, theta, support, labels)
            prior = self.mean(network, meta, "prior_rate", support, labels)
            divergence = kl(posterior, meta["log_posterior"], prior, meta["log_prior"])
            logits = network(phi, query)
            nll = adapt.cross_entropy(logits, query_labels)
            accuracy = (logits.argmax(-1) == query_labels).float().mean()
            return nll + self.config.kl_weight * divergence, (nll, divergence, accuracy, losses)

        meta, tasks = dict(self.named_parameters()), batch.tasks()
        noise = torch.randn(len(tasks[0]), len(self.log_prior), device=self.log_prior.device)
        total, (*parts, losses) = adapt.meta_loss(task_loss, meta, (*tasks, noise), self.config.tasks_at_once)
        terms = {name: part.mean() for name, part in zip(("nll", "kl", "accuracy"), parts, strict=True)}
        return LossTerms(total, terms | {"finite_inner_steps": adapt.finite_steps(losses)})

    @torch.no_grad()
    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        """theta = m_p + s eps for each draw, adapted to the supports; probabilities are averaged over the draws."""
        network = adapt.network(self.backbone, self.head, episode.n_way)
        tasks = (episode.support, episode.support_labels, episode.query)

        def from_draw(draw: Tensor) -> tuple[Tensor, Tensor]:
            def adapted(meta: adapt.Weights, support: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
                prior = self.mean(network, meta, "prior_rate", support, labels)
                theta = prior + (meta["log_prior"] / 2).exp() * draw
                return self.adapted(network, meta, theta, support, labels)

            return adapt.answers(adapted, network, dict(self.named_parameters()), tasks, self.config.together)

        answers = [from_draw(draw) for draw in self.draws]
        samples, losses = (torch.stack(parts) for parts in zip(*answers, strict=True))
        log_probs = samples.logsumexp(0) - math.log(len(samples))
        return Prediction(log_probs, details={"samples": samples.exp(), "support_losses": losses.mean(0)})


def kl(mean: Tensor, log_variance: Tensor, prior_mean: Tensor, prior_log_variance: Tensor) -> Tensor:
    """KL(N(m, v) || N(m', v')) of diagonal Gaussians = 1/2 sum(v/v' + (m' - m)^2 / v' - 1 + ln v'/v): (P,) x 4 -> ()"""
    squares = (log_variance.exp() + (prior_mean - mean).square()) / prior_log_variance.exp()
    return 0.5 * (squares - 1 + prior_log_variance - log_variance).sum()
