"""GNN: Garcia & Bruna, Few-Shot Learning with Graph Neural Networks, ICLR 2018.

The supports and ONE query are a complete graph whose nodes are image features beside the one-hot label, empty where the
label is not known. Layers alternate a learned adjacency, from absolute differences of nodes, with a graph convolution;
the last one gives class scores, read at the query. Caveat: labels pass dense weights, so the number of ways is fixed
and renaming the classes changes the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import check_within
from engram.nn import graph
from engram.nn.backbones.contract import vector_width
from engram.nn.heads import check_ways, one_hot
from engram.nn.pairs import on_pairs
from engram.types import EmbeddingMethod, Episode, History, MethodCard, Prediction


@dataclass(frozen=True)
class GnnConfig:
    n_way: int = 5
    """Ways of every task it will see: labels are part of the nodes."""
    n_layers: int = 3
    """Graph layers; all but the last add width / 2 features to every node, the last gives the class scores."""
    width: int = 96
    """The adjacency networks have 2w, 2w, w, w hidden features."""
    unknown_label: Literal["zeros", "uniform"] = "zeros"
    """What stands for the label of a query or an unlabelled support: zeros (the code) or 1 / n_way (the paper)."""

    def __post_init__(self) -> None:
        check_within(self, n_way=2, n_layers=1, width=2)


class Adjacency(nn.Module):
    """Who listens to whom: A_ij = softmax over j != i of MLP(|x_i - x_j|). Shapes: (N, V, d) -> (N, V, V)"""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        sizes = [inputs, 2 * width, 2 * width, width, width]
        self.net = graph.PointwiseNet(sizes, outputs=1, bias=True)

    def forward(self, nodes: Tensor) -> Tensor:
        # The diagonal passes the network like any pair, as in the reference: its BatchNorm counts all of them.
        scores = on_pairs(self.net, graph.differences(nodes))[..., 0]
        itself = torch.eye(nodes.shape[-2], dtype=torch.bool, device=nodes.device)
        return scores.masked_fill(itself, float("-inf")).softmax(-1)


class Gnn(EmbeddingMethod):
    Config = GnnConfig
    config: GnnConfig
    card = MethodCard(
        title="GNN",
        paper="Garcia & Bruna, Few-Shot Learning with Graph Neural Networks, ICLR 2018",
        semi_supervised=True,
        class_equivariant=False,
        fixed_ways=True,
        departures=(
            "Unknown labels. Paper: 1 / n_way (unverified). Public code: zeros. Ours: zeros, `unknown_label = "
            '"uniform"` for the other.',
            "Queries. Paper: one query of a random class per task. Ours: one per class, each in a graph of its own, so "
            "a step has five times the queries.",
            "Encoder calls. Public code: one call per slot of the batch. Ours: one call for all images.",
            "Optimisers. Public code: one Adam for the encoder and one for the graph. Ours: one with the same "
            "settings, which is the same.",
            "Test. Public code: 30,000 tasks of one query. Ours: the recipe's tasks with a graph for every query.",
            "Start of norms. Public code: weights of BatchNorm uniform in (0, 1), PyTorch's default before 1.2. Ours: "
            '1, unless the recipe says `norm_start = "uniform"`.',
            "`mini_5w1s_short`. Paper: from scratch, 80,000 steps of 100 tasks, no augmentation. Ours: at most 6,000 "
            "steps of 64 tasks with three queries per class from the included stage-one encoder, less dropout, "
            "augmented, a cosine schedule.",
            "`mini_5w1s_frozen_*` and `mini_5w5s_frozen_*`. Paper: encoder and graph trained together. Ours: the graph "
            "alone on a `conv4` classifier of the base classes, 1,500 steps of 40 tasks.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: GnnConfig) -> None:
        super().__init__(backbone, config)
        inputs, growth = vector_width(backbone, "gnn") + config.n_way, config.width // 2
        sizes = [inputs + k * growth for k in range(config.n_layers)]
        self.adjacencies = nn.ModuleList(Adjacency(size, config.width) for size in sizes)
        self.convolutions = nn.ModuleList(graph.PointwiseNet([2 * size, growth], bias=True) for size in sizes[:-1])
        self.out = nn.Linear(2 * sizes[-1], config.n_way)

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """Every query in its own graph with all supports: (B * Q) graphs of S + 1 nodes, the query last."""
        check_ways(episode.n_way, self.config.n_way, "gnn")
        n_query = episode.query.shape[1]
        nobody = episode.support_labels.new_full((len(episode.query), n_query), -1)
        support = self._with_labels(episode.support, episode.support_labels)
        query = self._with_labels(episode.query, nobody)
        supports, _, queries = graph.one_graph_per_query(support, episode.support_labels, query)
        scores = self.scores(torch.cat([supports, queries], 1))[:, -1]
        return Prediction(F.log_softmax(scores.unflatten(0, (-1, n_query)), -1))

    def _with_labels(self, features: Tensor, labels: Tensor) -> Tensor:
        """Image features beside the label kernel: one-hot, or what stands for "unknown". (B, n, d) -> (B, n, d + N)"""
        kernel = one_hot(labels, self.config.n_way)
        if self.config.unknown_label == "uniform":
            kernel = torch.where((labels < 0)[..., None], 1 / self.config.n_way, kernel)
        return torch.cat([features.float(), kernel], -1)

    def scores(self, nodes: Tensor) -> Tensor:
        """x <- [x ; LeakyReLU(BatchNorm(W [x ; A x] + b))] for all layers but the last, which is W [x ; A x] + b.

        Shapes: (N, V, d) -> (N, V, n_way)
        """
        *inner, last = self.adjacencies
        for adjacency, convolution in zip(inner, self.convolutions, strict=True):
            nodes = torch.cat([nodes, convolution(graph.aggregate(nodes, adjacency(nodes)))], -1)
        scores: Tensor = self.out(graph.aggregate(nodes, last(nodes)))
        return scores
