"""TADAM: Oreshkin, Rodriguez & Lacoste, TADAM: Task dependent adaptive metric, NeurIPS 2018.

Prototypes with three additions: distances times a fixed scale alpha; an encoder that sees the task, through a scale and
a shift of every layer predicted from the mean prototype (FiLM, the task embedding network); and ordinary classification
of the base classes beside the tasks, in updates of its own that are made ever more rarely. Caveat: supports are encoded
twice, without the task and under it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.card import REVISIONS
from engram.errors import EngramError, check_settings, check_within
from engram.nn.backbones.contract import vector_width
from engram.nn.heads import class_means
from engram.types import Episode, History, LossTerms, Method, MethodCard, Objective, Prediction, TrainBatch

ANNEALING, PERIODS = 0.9, 20
"""a step learns base classes with a probability of 0.9, and a tenth less in each twentieth of training"""
START = 0.2
"""weights of the task embedding start with a variance of this over their outputs, as those of the encoder do"""


@dataclass(frozen=True)
class TadamConfig:
    alpha: float = 7.5
    """Logits are -alpha * distance; chosen on validation classes for each number of shots, not learned."""
    auxiliary: bool = True
    """Classify base-class images beside the tasks; needs class_batch in [data]."""
    n_base_classes: int = 64
    film_decay: float = 0.01
    """Weight decay of the scalars gamma0 and beta0; BatchNorm, biases and the base classifier have none, other weights
    the recipe's."""
    loss_decay: float = 0.0
    """Weight decay as a part of both losses, so that it is clipped with their gradients, as in the public code; that of
    the scalars is then there, too. Set [train] weight_decay = 0 with it."""

    def __post_init__(self) -> None:
        check_within(self, n_base_classes=2, film_decay=0, loss_decay=0)
        check_settings(self, ("alpha", self.alpha > 0, "it must be above 0"))


class ResidualMlp(nn.Module):
    """h1 = SiLU(W1 t), h2 = SiLU(W2 h1 + h1), out = W3 h2 + h2, all with biases. Shapes: (B, inputs) -> (B, width)

    At the start W ~ N(0, 0.2 / width) and the biases are 0.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(i, width) for i in (inputs, width, width))
        for layer in (self.first, self.second, self.third):
            nn.init.normal_(layer.weight, std=(START / width) ** 0.5)
            nn.init.zeros_(layer.bias)

    def forward(self, task: Tensor) -> Tensor:
        hidden = F.silu(self.first(task))
        hidden = F.silu(self.second(hidden) + hidden)
        out: Tensor = self.third(hidden) + hidden
        return out


class TaskEmbedding(nn.Module):
    """TEN: gamma0 * g(t) and beta0 * b(t) of every conditioned layer, side by side. (B, d) -> (B, 2 * sum(widths))

    The scalars gamma0 and beta0 start at 0, so a new model is the unconditioned one; only they learn in the first step.
    """

    def __init__(self, inputs: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.scales = nn.ModuleList(ResidualMlp(inputs, width) for width in widths)
        self.shifts = nn.ModuleList(ResidualMlp(inputs, width) for width in widths)
        self.gamma0, self.beta0 = (nn.Parameter(torch.zeros(len(widths))) for _ in range(2))

    def forward(self, task: Tensor) -> Tensor:
        parts = []
        for scale, shift, gamma0, beta0 in zip(self.scales, self.shifts, self.gamma0, self.beta0, strict=True):
            parts += [gamma0 * scale(task), beta0 * shift(task)]
        return torch.cat(parts, -1)


class Tadam(Method):
    Config = TadamConfig
    config: TadamConfig
    card = MethodCard(
        title="TADAM",
        paper="Oreshkin, Rodriguez & Lacoste, TADAM: Task dependent adaptive metric, NeurIPS 2018",
        base_classes=True,
        departures=(
            "Base classes in running statistics. Public code: their images pass the encoder in every step, and once "
            "more where they are learned. Ours: once in every step, and a coin leaves the update out or makes it, with "
            "the paper's probability.",
            "Pooling. Paper: after all four blocks. Public code: after the first three, rounding up, found to be a bit "
            "better at 5 shots after the runs at 1. Ours: the public code's.",
            "Alpha. Paper: learned in the text, in the results chosen on validation classes, at 1 shot from 0.2 to 5 "
            "and at 5 shots from 0.5 to 20. Ours: 7.5 at any shots; 1 in `mini_5w1s_reference`.",
            "Queries. Paper: 32 (5-shot, 2 tasks) or 12 (1-shot, 5 tasks) drawn over all classes of the task. Ours: 6 "
            "or 2 of each class.",
            "Weight decay. Public code: part of the loss, so it is clipped with the gradient. Ours: in the optimiser, "
            "after clipping each tensor to norm 1; in the loss in `mini_5w1s_reference`.",
            "Clipping of gamma0 and beta0. Public code: each of the 24 scalars alone. Ours: the twelve of a kind as "
            "one tensor.",
            "Pixels. Public code: raw 0..255. Ours: mean and deviation of the training images, for half precision.",
            "Base-class images. Public code: 90 % of them. Ours: all.",
            "Test. Paper: 500 tasks with 100 queries drawn over all classes, ten trainings. Ours: 15 queries of each "
            "class, one training, the weights that were best on validation classes.",
            "`mini_5w1s_short`. Paper: 30,000 steps of 5 tasks, stepped rates, no augmentation. Ours: 3,000 steps of 8 "
            "tasks with 6 queries per class and 128 base-class images, augmented, a cosine schedule; "
            "`mini_5w1s_pretrained_short`: from stage one, 1,500 steps at 0.01; `mini_5w1s_distilled`: from a stage "
            "one taught by a ResNet-12 wide, 3,000 steps at 0.005 with a scale of 1, the encoder held for the first "
            "300.",
        ),
        revisions=REVISIONS["tadam"],
    )

    def __init__(self, backbone: nn.Module, config: TadamConfig) -> None:
        super().__init__(backbone, config)
        widths = getattr(backbone, "film_widths", ())
        if not widths:
            raise EngramError(
                "tadam scales and shifts the layers of its backbone but this one has none that can be: "
                "use resnet12_film, and images rather than features"
            )
        inputs = vector_width(backbone, "tadam")
        self.task_embedding = TaskEmbedding(inputs, widths)
        self.base_classifier = nn.Linear(inputs, config.n_base_classes) if config.auxiliary else None
        if self.base_classifier is not None:
            nn.init.xavier_uniform_(self.base_classifier.weight)
            nn.init.zeros_(self.base_classifier.bias)

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        """log p(c | x) = log softmax_c ( -alpha |f(x, t) - mu_c(t)| ),  t = mean over classes of mu_c with no task."""
        labels, n_way = episode.support_labels, episode.n_way
        task = class_means(self._encode(episode.support), labels, n_way).mean(1)
        film = self.task_embedding(task)
        prototypes = class_means(self._encode(episode.support, film), labels, n_way)
        difference = self._encode(episode.query, film)[:, :, None] - prototypes[:, None]
        distances = (difference.square().sum(-1) + 1e-12).sqrt()  # the root's slope is infinite at 0
        return Prediction(F.log_softmax(-self.config.alpha * distances, -1))

    def _encode(self, images: Tensor, film: Tensor | None = None) -> Tensor:
        """(B, n, ...) images, each under the scales and shifts (B, ...) of its task -> (B, n, d)"""
        conditions = () if film is None else (film.repeat_interleave(images.shape[1], 0),)
        features: Tensor = self.backbone(images.flatten(0, 1), *conditions)
        return features.unflatten(0, images.shape[:2])

    def objectives(self) -> tuple[Objective, ...]:
        """First the base classes, with probability 0.9 ^ (floor(20 progress) + 1); then, in every step, the tasks."""
        tasks = super().objectives()
        return tasks if self.base_classifier is None else (Objective(self.base_loss, _base_chance), *tasks)

    def loss(self, batch: TrainBatch) -> LossTerms:
        """NLL of the tasks, with the decay of encoder and task embedding where ``loss_decay`` is set."""
        terms = super().loss(batch)
        if not self.config.loss_decay:
            return terms
        scalars = torch.cat([self.task_embedding.gamma0, self.task_embedding.beta0]).square().sum()
        decay = self._decay(self.backbone, self.task_embedding) + self.config.film_decay / 2 * scalars
        return LossTerms(terms.total + decay, terms.terms)

    def _decay(self, *parts: nn.Module) -> Tensor:
        """loss_decay / 2 * sum of w^2 over the weights of layers; biases, norms and scalars are no weights."""
        squares = [p.square().sum() for part in parts for p in part.parameters() if p.ndim > 1]
        return self.config.loss_decay / 2 * torch.stack(squares).sum()

    def base_loss(self, batch: TrainBatch) -> LossTerms:
        """NLL of the base classes, from features that know no task; with ``loss_decay`` the encoder's decay, too."""
        assert self.base_classifier is not None
        if batch.class_batch is None:
            raise EngramError("tadam learns from base-class images too: set class_batch in [data], such as 64")
        images, ids = batch.class_batch
        nll = F.cross_entropy(self.base_classifier(self.backbone(images)), ids)
        total = nll + self._decay(self.backbone) if self.config.loss_decay else nll
        return LossTerms(total, {"base_nll": nll.detach()})

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Weights of encoder and task embedding decay as the recipe says, gamma0 and beta0 by ``film_decay`` unless the
        loss sees to it; biases, norms and the base classifier do not."""
        scalars = [self.task_embedding.gamma0, self.task_embedding.beta0]
        base = [] if self.base_classifier is None else list(self.base_classifier.parameters())
        known = {id(p) for p in (*scalars, *base)}
        others = [p for p in self.parameters() if p.requires_grad and id(p) not in known]
        return [
            {"params": [p for p in others if p.ndim > 1]},
            {"params": [*(p for p in others if p.ndim <= 1), *base], "weight_decay": 0.0},
            {"params": scalars, "weight_decay": 0.0 if self.config.loss_decay else self.config.film_decay},
        ]


def _base_chance(progress: float | Tensor) -> float | Tensor:
    return ANNEALING ** ((PERIODS * progress) // 1 + 1)
