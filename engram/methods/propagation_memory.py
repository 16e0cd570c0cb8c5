"""Label propagation (Zhou et al., NIPS 2003) over a task and its past: remembered pictures carry labels onwards.

Nodes are the task's supports and queries and all remembered ones. Each is tied to its nearest neighbours, and labels
flow along the ties. Past pictures need no name to help: they fill in the shape of the classes between a support and a
query. In a named stream the remembered supports of the task's classes are labelled as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import check_settings, check_within
from engram.nn import memory_bank
from engram.nn.heads import neighbour_graph, one_hot, propagate
from engram.nn.memory_bank import QUERY, SUPPORT, Bank
from engram.types import EmbeddingMethod, Episode, History, MethodCard, Prediction


@dataclass(frozen=True)
class PropagationMemoryConfig:
    k: int = 20
    """neighbours each node is tied to"""
    alpha: float = 0.8
    """share of a node's label that comes from its neighbours"""
    temperature: float = 0.1
    """a tie weighs exp((cosine - 1) / temperature)"""
    capacity: int = 1280
    """supports and queries remembered in each stream; the oldest task goes first, whole"""


class PropagationMemory(EmbeddingMethod):
    card = MethodCard(
        title="Label propagation memory",
        paper="a baseline; label propagation by Zhou, Bousquet, Lal, Weston & Schölkopf, NIPS 2003",
        transductive=True,
        continual=True,
        semi_supervised=True,
        departures=(
            "Labels. Paper: every labelled node has weight 1. Ours: the labels of a class add up to 1, for in a named "
            "stream a class met often would outweigh a new one.",
            "Graph. Paper: full, Gaussian weights. Ours: nearest neighbours, weights by the cosine.",
            "Answer. Paper: the largest entry of F. Ours: F divided by its sum, as probabilities; a query that no "
            "label reaches gets even chances.",
        ),
    )
    Config = PropagationMemoryConfig

    def __init__(self, backbone: nn.Module, config: PropagationMemoryConfig) -> None:
        super().__init__(backbone, config)
        check_within(config, k=1, capacity=1)
        check_settings(
            config,
            ("temperature", config.temperature > 0, "it must be above 0"),
            ("alpha", 0 < config.alpha < 1, "it must lie between 0 and 1"),
        )

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """p(c | x) = F_xc / sum_c F_xc,  F = (I - alpha S)^-1 Y,  S = D^-1/2 W D^-1/2 over task and memory."""
        task = torch.cat([episode.support, episode.query], 1).flatten(2).float()
        bank = memory_bank.from_history(history, task, episode.class_names, "propagation_memory", {SUPPORT, QUERY})
        memory_bank.check_capacity(self.config.capacity, task.shape[1], "propagation_memory")
        n_support, n_task = episode.support.shape[1], task.shape[1]
        nodes = torch.cat([task, bank.features], 1)
        present = F.pad(bank.steps >= 0, (n_task, 0), value=True)
        graph = neighbour_graph(self._unit(nodes, present), present, self.config.k, self.config.temperature)
        spread = propagate(graph, self._labels(bank, episode, nodes), self.config.alpha)[:, n_support:n_task]
        log_probs = (spread + 1e-9).log().log_softmax(-1)  # a query without any way to a label: even chances
        names = memory_bank.names_of(episode.support_labels, episode.class_names)
        names = F.pad(names, (0, n_task - n_support), value=-1)
        kinds = torch.tensor([SUPPORT] * n_support + [QUERY] * (n_task - n_support), device=task.device)
        entries = memory_bank.made(task, kinds, memory_bank.next_step(bank), names)
        return Prediction(log_probs, tuple(memory_bank.append(bank, entries, self.config.capacity)))

    @staticmethod
    def _unit(nodes: Tensor, present: Tensor) -> Tensor:
        """Features minus the mean of all nodes, on the unit sphere."""
        share = present.to(nodes.dtype)[..., None]
        centre = (nodes * share).sum(1, keepdim=True) / share.sum(1, keepdim=True)
        return F.normalize(nodes - centre, dim=-1)

    @staticmethod
    def _labels(bank: Bank, episode: Episode, nodes: Tensor) -> Tensor:
        """Y (B, M, n_way). The labels of a class add up to 1, so that one met often does not outweigh a new one."""
        labels = nodes.new_zeros(*nodes.shape[:2], episode.n_way)
        n_support, n_task = episode.support.shape[1], episode.support.shape[1] + episode.query.shape[1]
        labels[:, :n_support] = one_hot(episode.support_labels, episode.n_way).to(nodes.dtype)
        if episode.class_names is not None:
            labels[:, n_task:] = memory_bank.match(bank, episode.class_names).transpose(1, 2).to(nodes.dtype)
        return labels / labels.sum(1, keepdim=True).clamp(min=1)
