"""LwoF: Gidaris & Komodakis, Dynamic Few-Shot Visual Learning without Forgetting, CVPR 2018.

Logits are scaled cosines. The weight of a new class is generated from its supports: their mean direction, plus what an
attention over the weights of the base classes reads. Base and new classes answer side by side in one classifier.
Caveat: the encoder is that of stage one and stays frozen; in every training task the classes that play "new" are taken
out of the base memory, else it would hold the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError, check_settings, check_within
from engram.nn.heads import BaseStart, class_means, cosine_logits, joint_nll, random_weights, set_aside
from engram.types import Answers, EmbeddingMethod, Episode, History, LossTerms, MethodCard, Prediction, TrainBatch


@dataclass(frozen=True)
class LwofConfig:
    n_base_classes: int = 64
    """rows of the base classifier; at least the classes of the training split"""
    attention: bool = True
    """read the base memory; False: the mean direction of the supports alone"""
    scale: float = 10.0
    """of all cosines (logits and attention) at the start; learnt"""
    base_start: BaseStart = "random"
    """stage_one: base weights, and the scale of the logits where stage one learnt one, start from the cosine
    classifier of the run in [backbone] weights"""


class Attention(nn.Module):
    """Read of a support z over base classes b: sum_b softmax_b( g cos(Q z + c, k_b) ) w_b / |w_b|."""

    def __init__(self, n_base_classes: int, width: int, scale: float) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        nn.init.zeros_(self.query.bias)
        with torch.no_grad():
            self.query.weight.copy_(torch.eye(width) + 1e-3 * torch.randn(width, width))
        self.keys = random_weights(n_base_classes, width)
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, directions: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        """(B, S, d) of length 1, keys and weights (B or 1, C, d) -> (B, S, d)"""
        attention = cosine_logits(self.query(directions), keys, self.scale).softmax(-1)
        return attention @ F.normalize(weights, dim=-1)


class Lwof(EmbeddingMethod):
    Config = LwofConfig
    config: LwofConfig
    base_rows = "base_weights"
    goes_whole = "class_batch"
    card = MethodCard(
        title="LwoF",
        paper="Gidaris & Komodakis, Dynamic Few-Shot Visual Learning without Forgetting, CVPR 2018",
        base_classes=True,
        departures=(
            "Base weights. Reference: from stage one's cosine classifier. Ours: the same with `base_start = "
            '"stage_one"`, else N(0, 2/d) and learnt in stage two by the same loss, over an encoder trained as a '
            "linear classifier (`glyphs_quick`, the `_short` recipes).",
            "Base queries. Reference: 15 of each task's own. Ours: `class_batch` images shared by the tasks of a step, "
            "those of a task's set-aside classes left out; both halves of the loss weigh the same, as in the "
            "reference.",
            "Optimiser. Reference: SGD, Nesterov momentum 0.9, rates 0.1, 0.006, 0.0012, 0.00024 over 60 epochs of "
            "1,000 steps. Ours: the same; `mini_5w1s_short` has plain momentum and a cosine schedule.",
            "Crops. Reference: padded by 8 pixels. Ours: by 4; on feature stores none.",
            "Bias. Reference: one scalar for all logits. Ours: none; softmax does not see it.",
            "Base accuracy. Paper: also that of base classes and of all together, on held-out images. Ours: the task's "
            "own classes only.",
            "`mini_5w1s_short`. Paper: four convolutions, 8 tasks per step, rate 0.1. Ours: ResNet-12 wide, 32 tasks "
            "of 6 queries per class and 256 base images per step, rate 0.01, 10,000 steps.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: LwofConfig) -> None:
        super().__init__(backbone, config)
        check_within(config, n_base_classes=2)
        check_settings(config, ("scale", config.scale > 0, "it must be above 0"))
        width = prod(backbone.out_shape)  # type: ignore[arg-type]
        self.base_weights = random_weights(config.n_base_classes, width)
        self.scale = nn.Parameter(torch.tensor(config.scale))
        self.mean_gain = nn.Parameter(torch.ones(width))
        if config.attention:
            self.attention = Attention(config.n_base_classes, width, config.scale)
            self.read_gain = nn.Parameter(torch.ones(width))

    def generate(self, episode: Episode, kept: Tensor | None = None) -> Tensor:
        """w_c = phi_avg o mean of z + phi_att o mean of reads, z = f / |f| over the supports of c. -> (B, n_way, d)

        ``kept`` (B, C) are the base classes in memory; None is all of them.
        """
        directions = F.normalize(episode.support.flatten(2), dim=-1)
        generated = self.mean_gain * class_means(directions, episode.support_labels, episode.n_way)
        if not self.config.attention:
            return generated
        keys, weights = (t[None] if kept is None else t[kept] for t in (self.attention.keys, self.base_weights))
        reads = self.attention(directions, keys, weights)
        return generated + self.read_gain * class_means(reads, episode.support_labels, episode.n_way)

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """Only the columns of the task's own classes compete; the memory holds every base class."""
        logits = cosine_logits(episode.query.flatten(2), self.generate(episode), self.scale)
        return Prediction(F.log_softmax(logits, -1))

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Queries of the task's classes and of the base classes, each half of the loss, over all columns together."""
        if batch.class_batch is None:
            raise EngramError("lwof learns from base-class images too: set class_batch in [data], such as 64")
        images, ids = batch.class_batch
        base = self.backbone(images).flatten(1)
        steps = zip(self.embed(batch.episodes), batch.answers, strict=True)
        parts = torch.stack([torch.stack(self._step(e, a, base, ids)) for e, a in steps]).mean(0)
        novel_nll, base_nll, accuracy = parts
        terms = {"novel_nll": novel_nll, "base_nll": base_nll, "accuracy": accuracy}
        return LossTerms((novel_nll + base_nll) / 2, {name: value.detach() for name, value in terms.items()})

    def _step(self, episode: Episode, answers: Answers, base: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Cross-entropy of novel and of base queries over C - N base and N novel columns, and accuracy among the N."""
        kept, column = set_aside(answers.class_ids, self.config.n_base_classes)
        weights = torch.cat([self.base_weights[kept], self.generate(episode, kept)], 1)
        novel_logits = cosine_logits(episode.query.flatten(2), weights, self.scale)
        novel_nll = joint_nll(novel_logits, kept.shape[1] + answers.query_labels)
        base_nll = joint_nll(cosine_logits(base, weights, self.scale), column[:, ids])
        right = novel_logits[..., kept.shape[1] :].argmax(-1) == answers.query_labels
        return novel_nll, base_nll, right.float().mean()
