"""Prototypes that remember: ProtoNet whose class means go on growing with every support a name has had.

The least a memory must beat. In a named stream a class is the mean of its supports in this task and in all remembered
ones; without names nothing can be matched and the answer is that of ProtoNet. Memory is one running mean for each name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError, check_settings, check_within
from engram.nn import memory_bank
from engram.nn.heads import Distance, distances, one_hot
from engram.nn.memory_bank import CLASS_SUPPORTS, Bank
from engram.types import EmbeddingMethod, Episode, History, MethodCard, Prediction


@dataclass(frozen=True)
class ProtoMemoryConfig:
    capacity: int = 256
    """names remembered in each stream; those not met for longest go first, all of one task together"""
    temperature: float = 1.0
    """logits are -distance / temperature; about 0.1 suits the cosine"""
    distance: Distance = "euclidean"
    """squared, or 1 - cosine"""
    centring: Literal["none", "stream"] = "none"
    """stream: subtract the mean of all remembered supports and those at hand; only the cosine can tell"""


class ProtoMemory(EmbeddingMethod):
    card = MethodCard(
        title="Prototype memory",
        paper="a baseline; prototypes by Snell, Swersky & Zemel, NeurIPS 2017",
        continual=True,
        by_class_means=True,
    )
    Config = ProtoMemoryConfig

    def __init__(self, backbone: nn.Module, config: ProtoMemoryConfig) -> None:
        super().__init__(backbone, config)
        check_within(config, capacity=1)
        check_settings(config, ("temperature", config.temperature > 0, "it must be above 0"))
        if config.centring == "stream" and config.distance == "euclidean":
            raise EngramError(
                '[method] centring = "stream" moves all features alike, which distance = "euclidean" cannot see: '
                'set distance = "cosine" or centring = "none"'
            )

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """log p(c | x) = log softmax_c ( -D(f(x), mu_c) / t ),  mu_c = mean of f over all supports of the name c."""
        support, query = episode.support.flatten(2).float(), episode.query.flatten(2).float()
        bank = memory_bank.from_history(history, support, episode.class_names, "proto_memory", {CLASS_SUPPORTS})
        members = one_hot(episode.support_labels, episode.n_way).to(support.dtype).transpose(1, 2)
        sums, counts = members @ support, members.sum(-1)
        if episode.class_names is None:
            bank = self._anonymous(bank, sums, counts)
        else:
            sums, counts, bank = self._named(bank, sums, counts, episode.class_names)
        prototypes = sums / counts.clamp(min=1)[..., None]
        if self.config.centring == "stream":
            centre = mean_of(bank)
            prototypes, query = prototypes - centre, query - centre
        logits = -distances(query, prototypes, self.config.distance) / self.config.temperature
        return Prediction(F.log_softmax(logits, -1), tuple(bank))

    def _named(self, bank: Bank, sums: Tensor, counts: Tensor, class_names: Tensor) -> tuple[Tensor, Tensor, Bank]:
        """Sums and counts of the task's names over past and present; their means take the place of the remembered."""
        memory_bank.check_capacity(self.config.capacity, sums.shape[1], "proto_memory")
        same = memory_bank.match(bank, class_names)
        share = same.to(sums.dtype) * bank.weights[:, None]
        sums, counts = sums + share @ bank.features, counts + share.sum(-1)
        others = memory_bank.keep(bank, (bank.steps >= 0) & ~same.any(1))
        means, now = sums / counts.clamp(min=1)[..., None], memory_bank.next_step(bank)
        entries = memory_bank.made(means, CLASS_SUPPORTS, now, class_names, counts)
        return sums, counts, memory_bank.append(others, entries, self.config.capacity)

    @staticmethod
    def _anonymous(bank: Bank, sums: Tensor, counts: Tensor) -> Bank:
        """One entry without a name: the mean of all labelled supports so far, for the stream's mean alone."""
        now, means = memory_bank.next_step(bank), sums / counts.clamp(min=1)[..., None]
        whole = memory_bank.join(bank, memory_bank.made(means, CLASS_SUPPORTS, now, weights=counts))
        return memory_bank.made(mean_of(whole), CLASS_SUPPORTS, now, weights=whole.weights.sum(1, keepdim=True))


def mean_of(bank: Bank) -> Tensor:
    """Of all pictures behind the entries: (B, E, d) -> (B, 1, d)"""
    return bank.weights[:, None] @ bank.features / bank.weights.sum(1).clamp(min=1)[:, None, None]
