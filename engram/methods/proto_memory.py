"""Prototypes that remember: ProtoNet whose class means go on growing with every support a name has had.

The least a memory must beat. In a named stream a class is the mean of its supports in this task and in all remembered
ones; without names nothing can be matched and the answer is that of ProtoNet. Memory is one running sum for each name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError
from engram.nn import memory_bank
from engram.nn.heads import Distance, distances, one_hot
from engram.nn.memory_bank import MemoryBank
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
        title="Prototypes with memory",
        paper="a baseline; prototypes by Snell, Swersky & Zemel, NeurIPS 2017",
        continual=True,
    )
    Config = ProtoMemoryConfig

    def __init__(self, backbone: nn.Module, config: ProtoMemoryConfig) -> None:
        super().__init__(backbone, config)
        if config.temperature <= 0:
            raise EngramError(f"[method] temperature = {config.temperature} but it must be above 0")
        if config.capacity < 1:
            raise EngramError(f"[method] capacity = {config.capacity} but at least 1 name must fit: raise it")
        if config.centring == "stream" and config.distance == "euclidean":
            raise EngramError(
                '[method] centring = "stream" moves all features alike, which distance = "euclidean" cannot see: '
                'set distance = "cosine" or centring = "none"'
            )

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """log p(c | x) = log softmax_c ( -D(f(x), mu_c) / t ),  mu_c = mean of f over all supports of the name c."""
        support, query = episode.support.flatten(2).float(), episode.query.flatten(2).float()
        counted = F.pad(support, (0, 1), value=1.0)  # the last feature counts supports
        bank = memory_bank.from_history(history, counted, "proto_memory")
        memory_bank.check_names(bank, episode.class_names, "proto_memory")
        own = one_hot(episode.support_labels, episode.n_way).to(counted.dtype).transpose(1, 2) @ counted
        if episode.class_names is None:
            totals, bank = own, self._anonymous(bank, own)
        else:
            totals, bank = self._named(bank, own, episode.class_names)
        prototypes = totals[..., :-1] / totals[..., -1:].clamp(min=1)
        if self.config.centring == "stream":
            everything = bank.features.sum(1, keepdim=True)
            centre = everything[..., :-1] / everything[..., -1:].clamp(min=1)
            prototypes, query = prototypes - centre, query - centre
        logits = -distances(query, prototypes, self.config.distance) / self.config.temperature
        return Prediction(F.log_softmax(logits, -1), tuple(bank))

    def _named(self, bank: MemoryBank, own: Tensor, class_names: Tensor) -> tuple[Tensor, MemoryBank]:
        """Sums and counts of the task's names over past and present, which take the place of the remembered ones."""
        memory_bank.check_capacity(self.config.capacity, own.shape[1], "proto_memory")
        same = memory_bank.match(bank, class_names)
        totals = own + same.to(own.dtype).transpose(1, 2) @ bank.features
        now = memory_bank.next_step(bank)
        others = memory_bank.keep(bank, (bank.step >= 0) & ~same.any(2))
        return totals, memory_bank.append(others, totals, class_names, now, self.config.capacity)

    def _anonymous(self, bank: MemoryBank, own: Tensor) -> MemoryBank:
        """One entry without a name: the sum of all labelled supports so far, for the stream's mean alone."""
        total = torch.cat([bank.features, own], 1).sum(1, keepdim=True)
        step = memory_bank.next_step(bank)[:, None]
        return MemoryBank(total, torch.full_like(step, -1), step)
