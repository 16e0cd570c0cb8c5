"""Nearest neighbours over everything labelled so far: remembered supports vote beside those of the task.

In a named stream a remembered support votes for its own name, where the task has it. Without names it votes for the
classes whose supports it looks like, so that a query may reach its class over a picture seen before.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engram.errors import check_settings, check_within
from engram.nn import memory_bank
from engram.nn.heads import Distance, distances, one_hot
from engram.nn.memory_bank import SUPPORT, Bank
from engram.types import EmbeddingMethod, Episode, History, MethodCard, Prediction


@dataclass(frozen=True)
class KnnMemoryConfig:
    k: int = 5
    """neighbours that vote, besides the nearest support of each class in the task itself"""
    capacity: int = 1024
    """supports remembered in each stream; the oldest task goes first, whole"""
    temperature: float = 1.0
    """a neighbour's weight is exp(-distance / temperature); about 0.1 suits the cosine"""
    distance: Distance = "euclidean"
    """squared, or 1 - cosine"""


class KnnMemory(EmbeddingMethod):
    card = MethodCard(title="k-nearest memory", paper="a baseline: k nearest neighbours", continual=True)
    Config = KnnMemoryConfig

    def __init__(self, backbone: nn.Module, config: KnnMemoryConfig) -> None:
        super().__init__(backbone, config)
        check_within(config, k=1, capacity=1)
        check_settings(config, ("temperature", config.temperature > 0, "it must be above 0"))

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """p(c | x) = sum_i w_i L_ic,  w = softmax over the voters i of -D(f(x), f_i) / t,  L_ic = vote of i for c."""
        support, query = episode.support.flatten(2).float(), episode.query.flatten(2).float()
        bank = memory_bank.from_history(history, support, episode.class_names, "knn_memory", {SUPPORT})
        memory_bank.check_capacity(self.config.capacity, support.shape[1], "knn_memory")
        own = one_hot(episode.support_labels, episode.n_way).to(support.dtype).log()
        votes = torch.cat([own, self._remembered_votes(bank, support, own, episode.class_names)], 1)
        weights = -distances(query, torch.cat([support, bank.features], 1), self.config.distance)
        weights = weights / self.config.temperature
        voters = self._voters(weights, votes, episode)
        scores = torch.where(voters, weights, -torch.inf)[..., None] + votes[:, None]
        log_probs = torch.logsumexp(scores, 2).log_softmax(-1)
        names = memory_bank.names_of(episode.support_labels, episode.class_names)
        entries = memory_bank.made(support, SUPPORT, memory_bank.next_step(bank), names)
        return Prediction(log_probs, tuple(memory_bank.append(bank, entries, self.config.capacity)))

    def _remembered_votes(self, bank: Bank, support: Tensor, own: Tensor, class_names: Tensor | None) -> Tensor:
        """log L (B, C, n_way) of remembered supports: by name, or by likeness to the task's supports; -inf = none."""
        if class_names is not None:
            return memory_bank.match(bank, class_names).transpose(1, 2).to(support.dtype).log()
        likeness = -distances(bank.features, support, self.config.distance) / self.config.temperature
        votes = torch.logsumexp(likeness[..., None] + own[:, None], 2).log_softmax(-1)
        return torch.where((bank.steps >= 0)[..., None], votes, -torch.inf)

    def _voters(self, weights: Tensor, votes: Tensor, episode: Episode) -> Tensor:
        """(B, Q, M): the k nearest that have a vote, ties included, and the nearest of each class in the task.

        The latter leave no class without a vote, so that no probability is zero and no loss infinite.
        """
        able = votes.isfinite().any(-1)[:, None].expand_as(weights)
        ranked = torch.where(able, weights.detach(), -torch.inf)
        least = ranked.topk(min(self.config.k, ranked.shape[2]), -1).values[..., -1:]
        nearest = ranked >= least
        n_support = episode.support_labels.shape[1]
        members = one_hot(episode.support_labels, episode.n_way).bool()[:, None]  # (B, 1, S, n_way)
        of_class = torch.where(members, ranked[..., :n_support, None], -torch.inf)
        first = (of_class == of_class.amax(2, keepdim=True)) & members
        return able & (nearest | nn.functional.pad(first.any(-1), (0, ranked.shape[2] - n_support)))
