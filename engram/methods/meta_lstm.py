"""Meta-learner LSTM: Ravi & Larochelle, Optimization as a Model for Few-Shot Learning, ICLR 2017.

An LSTM's update "cell = forget * cell + input * candidate" is a step of gradient descent where the cell holds weights
and the candidate is the negative gradient. A small recurrent network, shared by all weights of a learner, gives the two
gates at every step; the first cell is learnt too. Caveat: in training queries share BatchNorm statistics, at test they
are normalised with those gathered on the supports, so no query sees another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from engram.errors import check_settings, check_within
from engram.nn import adapt
from engram.nn.task_norm import Statistics, TaskNorm, for_tasks, with_statistics
from engram.types import Episode, History, LossTerms, Method, MethodCard, Prediction, TrainBatch

SCALE = 10
"""p of the preprocessing"""


@dataclass(frozen=True)
class MetaLstmConfig:
    n_way: int = 5
    """rows of the head; a task with fewer classes uses the first of them"""
    updates: int = 12
    """of the learner, each with the whole support set; the reference has 12 at one shot and 8 at five"""
    hidden: int = 20
    momentum: float = 0.9
    """weight of the newest statistics of the supports; the reference has 0.9 at one shot and 0.95 at five"""


class Optimiser(nn.Module):
    """Both layers of the meta-learner, applied to every weight of a learner alike.

    h = LSTM(pre(g), pre(L));  a = W_F [h, c, a'] + b_F;  i = W_I [h, c, i'] + b_I, where a', i' are the gates before,
    not yet squashed. Shapes: n rows, one for each weight of each task.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTMCell(4, hidden)
        self.forget, self.input = nn.Linear(hidden + 2, 1), nn.Linear(hidden + 2, 1)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.01, 0.01)
        nn.init.uniform_(self.forget.bias, 4, 5)
        nn.init.uniform_(self.input.bias, -5, -4)

    def start(self, cell: Tensor) -> tuple[Tensor, ...]:
        """No past: hidden, its memory, and both gates, for as many rows as ``cell`` has."""
        hidden = cell.new_zeros(cell.numel(), self.lstm.hidden_size)
        return hidden, hidden, cell.new_zeros(cell.numel(), 1), cell.new_zeros(cell.numel(), 1)

    def forward(
        self, cell: Tensor, gradient: Tensor, loss: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(B, P), (B, P), (B,) -> the next cell sigmoid(a) o c - sigmoid(i) o g, and the state"""
        told = preprocessed(loss)[:, None].expand(*cell.shape, 2)
        inputs = torch.cat([preprocessed(gradient), told], -1).flatten(0, 1)
        hidden, memory, forget, step = state
        hidden, memory = self.lstm(inputs, (hidden, memory))
        column = cell.reshape(-1, 1)
        forget = self.forget(torch.cat([hidden, column, forget], 1))
        step = self.input(torch.cat([hidden, column, step], 1))
        cell = forget.sigmoid().view_as(cell) * cell - step.sigmoid().view_as(cell) * gradient
        return cell, (hidden, memory, forget, step)


class MetaLstm(Method):
    Config = MetaLstmConfig
    config: MetaLstmConfig
    card = MethodCard(
        title="Meta-learner LSTM",
        paper="Ravi & Larochelle, Optimization as a Model for Few-Shot Learning, ICLR 2017",
        class_equivariant=False,
        batch_norm="support",
        fixed_ways=True,
        inner_steps_key="updates",
        departures=(
            "Mini-batches. Reference: of 5 (1-shot) or 25 (5-shot) images, which is the whole support set. Ours: "
            "always the whole support set.",
            "Updates at 5 shots. Paper: 5. Reference code: 8. Ours: 8.",
            "First weights of the learner. Reference: its own. Ours: Xavier for the head, the backbone's own for "
            "convolutions.",
            "`mini_5w1s_short`. Reference: 75,000 steps of one task at rate 0.001. Ours: 4,500 steps of 4 tasks at "
            "0.002 with a cosine schedule.",
            "`mini_5w1s_pretrained`. Reference: from scratch, 15 queries per class in training. Ours: from a stage one "
            "of the same convolutions, 5 queries per class, 6,500 steps of one task with a cosine schedule, a moving "
            "average of the weights. `mini_5w1s_distilled`: from a stage one taught by a ResNet-12 wide, 8,000 steps "
            "of 4 tasks with 15 queries per class; `_24k`: three times as many.",
            "`mini_5w1s_from_meta_sgd_with_head`. Reference: from scratch. Ours: from Meta-SGD's encoder and head, 5 "
            "queries per class, 5,000 steps at half the rate with a cosine schedule, a moving average.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: MetaLstmConfig) -> None:
        super().__init__(for_tasks(backbone), config)
        check_within(config, n_way=2, updates=1, hidden=1)
        check_settings(config, ("momentum", 0 < config.momentum <= 1, "it lies above 0 and up to 1"))
        self.head = adapt.linear_head(self.backbone, config.n_way)
        self.optimiser = Optimiser(config.hidden)

    def forward(self, images: Tensor) -> Tensor:
        """(n, C, H, W) -> (n, n_way) logits"""
        logits: Tensor = self.head(self.backbone(images).flatten(1))
        return logits

    def learner(self) -> dict[str, nn.Parameter]:
        """The weights that are learned anew for every task: the first cell, by name."""
        return {name: p for name, p in self.named_parameters() if not name.startswith("optimiser.")}

    def learned(self, support: Tensor, labels: Tensor, n_way: int) -> tuple[Tensor, list[Statistics], Tensor]:
        """All updates of B tasks: cells (B, P), running statistics of the supports (B, C) by norm, losses (B, m).

        Losses and gradients, and the weights they are taken at, are constants of the meta-learner: first order.
        """
        first = self.learner()

        def support_loss(row: Tensor, images: Tensor, labels: Tensor) -> tuple[Tensor, list[Statistics]]:
            logits, seen = self.logits(row, images, n_way)
            return adapt.cross_entropy(logits, labels), seen

        chunk = adapt.chunk_of(support, len(support))
        differentiated = adapt.spread(grad_and_value(support_loss, has_aux=True), (0, 0, 0), chunk)
        cell = adapt.flat(first).expand(len(support), -1)
        state, losses = self.optimiser.start(cell), []
        norms = [module for module in self.modules() if isinstance(module, TaskNorm)]
        running = [(torch.zeros_like(n.bias), torch.ones_like(n.bias)) for n in norms]
        for _ in range(self.config.updates):
            gradient, (loss, seen) = differentiated(cell.detach(), support, labels)
            running = [self._mixed(old, new) for old, new in zip(running, seen, strict=True)]
            losses.append(loss.detach())
            cell, state = self.optimiser(cell, gradient.detach() / support.shape[1], loss.detach(), state)
        return cell, running, torch.stack(losses, 1)

    def _mixed(self, old: Statistics, new: Statistics) -> Statistics:
        momentum = self.config.momentum
        mean, variance = (o.detach() + momentum * (n.detach() - o.detach()) for o, n in zip(old, new, strict=True))
        return mean, variance

    def logits(
        self, row: Tensor, images: Tensor, n_way: int, given: list[Statistics] | None = None
    ) -> tuple[Tensor, list[Statistics]]:
        """One task's logits (n, n_way) with the weights ``row`` (P,), and the statistics used."""
        weights = {**adapt.shaped(row, self.learner())}
        logits, seen = with_statistics(self, lambda: functional_call(self, weights, (images,)), given)
        return logits[:, :n_way], seen

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Query loss with the last cell, its gradient by ordinary autograd along the chain of cells and states."""
        n_way = batch.episodes[0].n_way
        adapt.check_ways(n_way, self.head)
        support, labels, query, query_labels = batch.tasks()
        cell, _, losses = self.learned(support, labels, n_way)
        chunk = adapt.chunk_of(query, len(query))
        logits = adapt.spread(lambda row, x: self.logits(row, x, n_way)[0], (0, 0), chunk)(cell, query)
        total = adapt.cross_entropy(logits.flatten(0, 1), query_labels.flatten())
        accuracy = (logits.argmax(-1) == query_labels).float().mean()
        terms = {"nll": total.detach(), "accuracy": accuracy, "finite_inner_steps": adapt.finite_steps(losses)}
        return LossTerms(total, terms)

    @torch.no_grad()
    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        n_way = episode.n_way
        adapt.check_ways(n_way, self.head)
        cell, running, losses = self.learned(episode.support, episode.support_labels, n_way)

        def answer(row: Tensor, query: Tensor, given: list[Statistics]) -> Tensor:
            return self.logits(row, query, n_way, given)[0].log_softmax(-1)

        answers = adapt.spread(answer, (0, 0, 0), adapt.chunk_of(episode.query, len(episode.query)))
        return Prediction(answers(cell, episode.query, running), details={"support_losses": losses})


def preprocessed(x: Tensor) -> Tensor:
    """Size and sign apart: (ln|x| / p, sign x) where |x| >= exp(-p), else (-1, exp(p) x). (...) -> (..., 2)"""
    size = x.abs().clamp(min=math.exp(-SCALE))
    large = x.abs() >= math.exp(-SCALE)
    return torch.stack([size.log() / SCALE, torch.where(large, x.sign(), math.exp(SCALE) * x)], -1)
