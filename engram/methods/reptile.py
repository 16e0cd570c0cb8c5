"""REPTILE: Nichol, Achiam & Schulman, On First-Order Meta-Learning Algorithms, 2018.

Train on a task for a few mini-batches with an ordinary optimiser, then move the initialisation part of the way to the
weights that came out. There is no query split and nothing is differentiated through training. Caveat: the figure most
often quoted is the one "with transduction", where BatchNorm sees all queries (``query_statistics = "queries"``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import grad_and_value

from engram.errors import check_within
from engram.nn import adapt
from engram.nn.task_norm import for_tasks
from engram.types import Episode, History, LossTerms, Method, MethodCard, Prediction, TrainBatch

DECAY, EPSILON = 0.999, 1e-8
"""of the inner Adam, whose first moment is off (beta1 = 0)"""


@dataclass(frozen=True)
class ReptileConfig(adapt.LearnerConfig):
    inner_rate: float = 1e-3
    """of the inner Adam"""
    inner_steps: int = 8
    inner_batch: int = 10
    """images per inner step, drawn by going through the reshuffled images of the task again and again"""
    test_steps: int = 50
    test_batch: int = 5
    """5 at one shot, 15 at five"""
    head_start: Literal["xavier", "zero"] = "xavier"
    """zero: the first steps inside a task make the head alone, which spares convolutions that were trained before"""


class Reptile(Method):
    Config = ReptileConfig
    config: ReptileConfig
    card = MethodCard(
        title="REPTILE",
        paper="Nichol, Achiam & Schulman, On First-Order Meta-Learning Algorithms, 2018",
        class_equivariant=False,
        support_order_invariant=False,
        batch_norm="support",
        fixed_ways=True,
        inner_steps_key="inner_steps",
        query_statistics=True,
        departures=(
            "Second moment of the inner Adam. Reference: handed on from task to task, into evaluation too. Ours: the "
            "same, but the tasks of a step start from one moment and leave their mean.",
            "Mini-batches at test. Reference: drawn at random. Ours: one fixed order of the slots, so that evaluation "
            "repeats.",
            "Images of a training task. Reference: 15 per class. Ours: its supports and queries together, 14 + 1.",
            "First weights. Reference: TensorFlow's. Ours: Xavier for the head, the backbone's own for convolutions.",
            "Test. Reference: 1 query per class, 10,000 tasks. Ours: 1 and 15 per class, 2,000 tasks "
            "(`mini_5w1s_short`: 1,000).",
            "`mini_5w1s_reference_from_meta_sgd`. Paper: from scratch, step 1. Ours: from Meta-SGD's convolutions, a "
            "head of zeros and step 0.25, 12,000 steps.",
            "Short recipes. Paper: 100,000 steps. Ours: 8,000 or 30,000; with `--max-minutes` the step falls to 0 by "
            "then.",
        ),
    )
    second_moment: Tensor
    steps_made: Tensor

    def __init__(self, backbone: nn.Module, config: ReptileConfig) -> None:
        super().__init__(for_tasks(backbone), config)
        check_within(config, n_way=2, inner_steps=1, inner_batch=1, test_steps=1, test_batch=1)
        check_within(config, inner_rate=(1e-6, 1.0))  # Adam moves every weight by about so much
        self.head = adapt.linear_head(self.backbone, config.n_way)
        if config.head_start == "zero":
            nn.init.zeros_(self.head.weight)
        if config.together:
            self.card = self.card.normalising_together()
        self.register_buffer("second_moment", torch.zeros(sum(p.numel() for p in self.parameters())))
        self.register_buffer("steps_made", torch.zeros(()))

    def trained(
        self, network: adapt.Network, weights: adapt.Weights, images: Tensor, labels: Tensor, batches: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Step 1 for one task: k steps of Adam on the mini-batches (k, n) of its images.

        v <- b v + (1 - b) g^2,  phi <- phi - rate sqrt(1 - b^t) g / (sqrt(v) + eps), with v and t going on from the
        steps made before. -> weights (P,), second moment (P,), losses before the steps (k,)
        """

        def batch_loss(row: Tensor, batch: Tensor) -> Tensor:
            return adapt.cross_entropy(network(adapt.shaped(row, weights), images[batch]), labels[batch])

        row, moment, losses = adapt.flat(weights), self.second_moment, []
        for step, batch in enumerate(batches, start=1):
            gradient, value = grad_and_value(batch_loss)(row, batch)
            moment = DECAY * moment + (1 - DECAY) * gradient.square()
            rate = self.config.inner_rate * (1 - DECAY ** (self.steps_made + step)).sqrt()
            row = row - rate * gradient / (moment.sqrt() + EPSILON)
            losses.append(value)
        return row, moment, torch.stack(losses)

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Step 2: a loss whose gradient is theta - mean W over tasks: SGD of rate eps makes the paper's step."""
        config, network = self.config, adapt.network(self.backbone, self.head, batch.episodes[0].n_way)
        support, support_labels, query, query_labels = batch.tasks()
        images, labels = torch.cat([support, query], 1), torch.cat([support_labels, query_labels], 1)
        batches = random_batches(labels, config.inner_steps, config.inner_batch)
        learn = partial(self.trained, network)

        weights = dict(self.named_parameters())
        with torch.no_grad():
            rows, moments, losses = adapt.over_tasks(learn, weights, (images, labels, batches), config.inner_batch)
            if self.training:
                self.second_moment.copy_(moments.mean(0))
                self.steps_made.add_(config.inner_steps)
            gradient = adapt.shaped(adapt.flat(weights) - rows.mean(0), weights)
        first, last = losses[:, 0].mean(), losses[:, -1].mean()
        terms = {"first_batch": first, "last_batch": last, "finite_inner_steps": adapt.finite_steps(losses)}
        return LossTerms(adapt.with_gradient(last, weights, gradient), terms)

    @torch.no_grad()
    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        """At test: the same on the supports, with more steps, then the queries."""
        device, network = episode.support.device, adapt.network(self.backbone, self.head, episode.n_way)
        batches = fixed_batches(episode.support.shape[1], self.config.test_steps, self.config.test_batch).to(device)

        def adapted(weights: adapt.Weights, support: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
            row, _, losses = self.trained(network, weights, support, labels, batches)
            return adapt.shaped(row, weights), losses

        tasks = episode.support, episode.support_labels, episode.query
        log_probs, losses = adapt.answers(adapted, network, dict(self.named_parameters()), tasks, self.config.together)
        return Prediction(log_probs, details={"support_losses": losses})


def random_batches(labels: Tensor, steps: int, size: int) -> Tensor:
    """Positions of each task's mini-batches: reshuffled passes, one after the other. (B, n) -> (B, steps, size)"""
    n_tasks, n_images = labels.shape
    passes = torch.rand(n_tasks, -(-steps * size // n_images), n_images, device=labels.device).argsort(-1)
    return passes.flatten(1)[:, : steps * size].unflatten(1, (steps, size))


def fixed_batches(n_images: int, steps: int, size: int) -> Tensor:
    """The same for evaluation, one order for all tasks: (steps, size)."""
    generator = torch.Generator().manual_seed(0)
    passes = [torch.randperm(n_images, generator=generator) for _ in range(-(-steps * size // n_images))]
    return torch.cat(passes)[: steps * size].view(steps, size)
