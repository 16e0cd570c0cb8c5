"""SNAIL: Mishra, Rohaninejad, Chen & Abbeel, A Simple Neural Attentive Meta-Learner, ICLR 2018.

A task is a sequence: supports with their labels, then one query without. Dilated causal convolutions gather the past,
attention looks things up in it, and the answer is read at the last step. Each query ends a sequence of its own; the
steps of the supports are the same for all queries of a task, so they are computed once. Caveat: the answer depends on
the order of the supports and on how classes are numbered, and the head is built for a number of ways and shots.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2, prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError, check_within
from engram.nn.heads import one_hot
from engram.types import EmbeddingMethod, Episode, History, MethodCard, Prediction


@dataclass(frozen=True)
class SnailConfig:
    n_way: int = 5
    """labels the head knows; tasks may have fewer"""
    n_shot: int = 5
    """n_way * n_shot + 1 is the longest sequence, which decides the depth of the convolutions"""


class DenseBlock(nn.Module):
    """Appends tanh(a) o sigmoid(b), a and b causal convolutions of kernel 2: of x_t and x_(t - dilation).

    Shapes: supports (B, S, c) and queries (B, Q, c), each at step S of its own sequence -> c + filters
    """

    def __init__(self, inputs: int, filters: int, dilation: int) -> None:
        super().__init__()
        self.now, self.before = nn.Linear(inputs, 2 * filters), nn.Linear(inputs, 2 * filters, bias=False)
        self.dilation = dilation

    def forward(self, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        padded = F.pad(support, (0, 0, self.dilation, 0))  # nothing comes before the first step
        steps = support.shape[1]
        return self._append(support, padded[:, :steps]), self._append(query, padded[:, steps : steps + 1])

    def _append(self, now: Tensor, before: Tensor) -> Tensor:
        a, b = (self.now(now) + self.before(before)).chunk(2, -1)
        return torch.cat([now, torch.tanh(a) * torch.sigmoid(b)], -1)


class AttentionBlock(nn.Module):
    """Appends a read: softmax over keys up to the own step of q.k / sqrt(size), times their values."""

    def __init__(self, inputs: int, key_size: int, value_size: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(inputs, key_size), nn.Linear(inputs, key_size)
        self.value = nn.Linear(inputs, value_size)

    def forward(self, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.key(support), self.value(support)
        logits = self.query(support) @ keys.transpose(-1, -2) / keys.shape[-1] ** 0.5
        future = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).triu(1)
        read = logits.masked_fill(future, float("-inf")).softmax(-1) @ values
        return torch.cat([support, read], -1), torch.cat([query, self._last(query, keys, values)], -1)

    def _last(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The last step sees all supports and itself, no other query."""
        asked = self.query(query) / keys.shape[-1] ** 0.5
        own = (asked * self.key(query)).sum(-1, keepdim=True)
        shares = torch.cat([asked @ keys.transpose(-1, -2), own], -1).softmax(-1)
        return shares[..., :-1] @ values + shares[..., -1:] * self.value(query)


class Snail(EmbeddingMethod):
    Config = SnailConfig
    config: SnailConfig
    card = MethodCard(
        title="SNAIL",
        paper="Mishra et al., A Simple Neural Attentive Meta-Learner, ICLR 2018",
        class_equivariant=False,
        support_order_invariant=False,
        fixed_ways=True,
        fixed_shots=True,
        departures=(
            "Shots in training. Paper: drawn from 1 to 5, one model for both tests (unverified). Ours: a model for "
            "each, trained with the shots of its test.",
            "Dilations. Paper: 2, 4, 8, ... (unverified). Ours: 1, 2, 4, ..., so that the step before is seen.",
            "Dropout of the encoder. Paper: 0.9, read as what is kept (unverified). Ours: 0.1 is dropped.",
            "BatchNorm at test. Paper: not stated. Ours: running statistics.",
            "Queries in training. Paper: one for each sequence, batches of 32. Ours: one per class, each a sequence "
            "that shares the steps of its supports.",
            "Schedule. Paper: Adam 1e-4, length unknown. Ours: 100,000 steps of 32 tasks.",
            "Pooling. Paper: maps of 6x6 before the mean. Ours: 5x5 (no padding when pooling), and the mean before the "
            "last 1x1 convolution but one, which commutes with it.",
            "`mini_5w1s_short`. Paper: 1e-4, length unknown. Ours: 4,000 steps of 16 tasks with ten queries per class, "
            "5e-4 with a cosine schedule, gradients clipped to norm 1, mirrored crops.",
            "`mini_5w1s_frozen`. Paper: encoder and head trained together. Ours: the head alone on a `conv4` "
            "classifier of the base classes, 2,400 steps of 16 tasks.",
            "`mini_5w1s_pretrained`. Paper: from scratch. Ours: the paper's encoder from stage one, trained on with "
            "the head for 20,000 steps at the paper's 1e-4; `_short`: 2,000 at 3e-4; `_held`: the head alone for the "
            "first 4,000; `_frozen`: the head alone, 4,000 steps at 5e-4. `mini_5w1s_distilled`: from a stage one "
            "taught by a ResNet-12 wide, 6,000 steps at 3e-4 with five queries per class, the head alone for the first "
            "2,400.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: SnailConfig) -> None:
        super().__init__(backbone, config)
        check_within(config, n_way=2, n_shot=1)
        depth = ceil(log2(self._longest))
        width = prod(backbone.out_shape) + config.n_way  # type: ignore[arg-type]
        self.blocks = nn.ModuleList()
        for last, (keys, values) in enumerate(((64, 32), (256, 128), (512, 256)), start=-2):
            self.blocks.append(AttentionBlock(width, keys, values))
            width += values
            for i in range(depth if last else 0):  # convolutions stand between the attentions
                self.blocks.append(DenseBlock(width, 128, 2**i))
                width += 128
        self.out = nn.Linear(width, config.n_way)

    @property
    def _longest(self) -> int:
        return self.config.n_way * self.config.n_shot + 1

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """Supports in the order they come, each with its own label beside it; a query's label is all zeros."""
        self._check(episode)
        support, query = episode.support.flatten(2), episode.query.flatten(2)
        labels = one_hot(episode.support_labels, self.config.n_way).to(support.dtype)
        support = torch.cat([support, labels], -1)
        query = F.pad(query, (0, self.config.n_way))
        for block in self.blocks:
            support, query = block(support, query)
        return Prediction(F.log_softmax(self.out(query)[..., : episode.n_way], -1))

    def _check(self, episode: Episode) -> None:
        if episode.n_way > self.config.n_way:
            raise EngramError(
                f"SNAIL's head knows {self.config.n_way} labels ([method] n_way) but the task has {episode.n_way} "
                f"classes: ask with at most {self.config.n_way} ways, or train one with n_way = {episode.n_way}"
            )
        if (length := episode.support.shape[1] + 1) > self._longest:
            raise EngramError(
                f"SNAIL's head was built for sequences of up to {self._longest} steps ([method] n_way * n_shot + 1) "
                f"but the task has {length}: ask with fewer shots, or train one with more n_shot"
            )
