"""TPN: Liu et al., Learning to Propagate Labels: Transductive Propagation Network for Few-Shot Learning, ICLR 2019.

All supports and queries of a task are nodes of one graph whose ties are Gaussian, with a length scale that a small
network predicts for every node. Labels spread over the graph in closed form, and encoder and scale network are trained
through it. Caveat: transductive by design, and the figures of the paper are for 15 queries of every class at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import check_settings, check_within
from engram.nn.backbones.contract import as_map_shape
from engram.nn.heads import one_hot, propagate, squared_distances
from engram.types import EmbeddingMethod, Episode, History, LossTerms, MethodCard, Prediction, TrainBatch

WIDTH, HIDDEN = 64, 8
EPSILON = 2.0**-23
"""of float32, added to every scale"""
FIRST_SCALE = 0.3
"""of every node before training: ties of e^-3 to e^-10, neither all alike nor all nothing"""
TIE = 1e-6
"""exponents closer than this count as equal, so that rounding never chooses a neighbour"""


@dataclass(frozen=True)
class TpnConfig:
    alpha: float = 0.99
    """share of a node's label that comes from its neighbours"""
    n_neighbours: int = 20
    """ties kept for each node, the one to itself among them"""


class _ScaleNet(nn.Module):
    """Length scale of a node from its map: conv3x3 - BatchNorm - pool - ReLU twice, linear - ReLU - linear.

    Nothing bounds the last number: it may be negative. Shapes: (n, C, h, w) -> (n, 1)
    """

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((channels, WIDTH), (WIDTH, 1)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)]
            layers += [nn.MaxPool2d(2, ceil_mode=True), nn.ReLU(inplace=True)]
            height, width = (height + 1) // 2, (width + 1) // 2
        self.layers = nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(height * width, HIDDEN), nn.ReLU(inplace=True), nn.Linear(HIDDEN, 1)
        )
        nn.init.constant_(self.layers[-1].bias, FIRST_SCALE)  # type: ignore[arg-type]

    def forward(self, maps: Tensor) -> Tensor:
        scales: Tensor = self.layers(maps)
        return scales


class Tpn(EmbeddingMethod):
    Config = TpnConfig
    config: TpnConfig
    capturable = False  # the Cholesky factors
    card = MethodCard(
        title="TPN",
        paper="Liu et al., Learning to Propagate Labels: Transductive Propagation Network, ICLR 2019",
        transductive=True,
        semi_supervised=True,
        departures=(
            "Inverse. Reference: machine epsilon added to every entry, then inverted. Ours: a Cholesky solution of the "
            "matrix as it is, in float32.",
            "Nearest neighbours. Reference: exactly 20. Ours: 20 and those that tie with the last, so that the order "
            "of the nodes decides nothing.",
            "Length scale before training. Reference: wherever the seed puts it, often so near 0 that no two nodes are "
            "tied. Ours: about 0.3.",
            "Encoder calls in training. Reference: supports and queries apart. Ours: one call for all images of the "
            "batch.",
            "BatchNorm. Reference: epsilon 1e-3, decay 0.999. Ours: epsilon 1e-5, momentum 0.1.",
            "Weights kept. Reference: better validation accuracy or lower loss. Ours: the best validation accuracy.",
            "Length of training. Reference: up to 210,000 tasks in code, weights released from steps 81,500 (1-shot) "
            "and 50,100 (5-shot). Ours: the recipe, 100,000 (200,000 on tieredImageNet).",
            "Unlabelled supports. Reference: none in these figures. Ours: nodes without a label, like queries, and "
            "left out of the loss.",
            "`mini_5w1s_short`. Reference: one task per step, 1e-3 halved every 10,000, raw pixels, no augmentation. "
            "Ours: 16 tasks per step, 2e-3 with a cosine that ends with the time box, standardised pixels, shifted "
            "and mirrored.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: TpnConfig) -> None:
        super().__init__(backbone, config)
        check_settings(config, ("alpha", 0 <= config.alpha < 1, "it lies from 0 to below 1"))
        check_within(config, n_neighbours=1)
        self.map_shape = as_map_shape(backbone.out_shape)  # type: ignore[arg-type]
        self.scale_net = _ScaleNet(*self.map_shape)

    def graph(self, nodes: Tensor) -> Tensor:
        """Steps 1 to 4: normalised ties A = D^-1/2 W D^-1/2 of n nodes. (B, n, d) -> (B, n, n)

        W_ij = exp(-mean over dimensions of (f_i / s_i - f_j / s_j)^2 / 2), where j is among the nearest of i or i among
        those of j, else 0; W_ii = 1.
        """
        scales = self.scale_net(nodes.flatten(0, 1).unflatten(1, self.map_shape)) + EPSILON
        scaled = nodes / scales.unflatten(0, nodes.shape[:2])
        exponents = -squared_distances(scaled, scaled).clamp(min=0) / (2 * nodes.shape[-1])
        itself = torch.eye(nodes.shape[1], dtype=torch.bool, device=nodes.device)
        exponents = exponents.masked_fill(itself, 0)  # exactly: the difference of two huge squares need not be 0
        ranked = exponents.detach()
        least = ranked.topk(min(self.config.n_neighbours, nodes.shape[1]), -1).values[..., -1:]
        near = ranked >= least - TIE
        weights = torch.where(near | near.transpose(1, 2), exponents.exp(), 0)
        degree = weights.sum(-1).rsqrt()
        return degree[:, :, None] * weights * degree[:, None, :]

    def _spread(self, episode: Episode) -> Tensor:
        """Step 5: F = (I - alpha A)^-1 Y over supports, then queries; Y is one-hot there and 0 here. (B, n, n_way)"""
        nodes = torch.cat([episode.support.flatten(2), episode.query.flatten(2)], 1)
        labels = one_hot(episode.support_labels, episode.n_way).to(nodes.dtype)
        labels = F.pad(labels, (0, 0, 0, episode.query.shape[1]))
        return propagate(self.graph(nodes), labels, self.config.alpha)

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """Step 6: log softmax over the raw row of F, which is not a probability and is not meant to be."""
        spread = self._spread(episode)[:, episode.support.shape[1] :]
        return Prediction(F.log_softmax(spread, -1))

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Mean cross-entropy over labelled supports and queries; `isolated`: the share of queries no label reaches."""
        parts: dict[str, list[Tensor]] = {"nll": [], "accuracy": [], "isolated": []}
        for episode, answers in zip(self.embed(batch.episodes), batch.answers, strict=True):
            spread, n_support = self._spread(episode), episode.support.shape[1]
            labels = torch.cat([episode.support_labels, answers.query_labels], 1)
            parts["nll"].append(F.cross_entropy(spread.flatten(0, 1), labels.flatten(), ignore_index=-1))
            of_queries = spread.detach()[:, n_support:]
            parts["accuracy"].append((of_queries.argmax(-1) == answers.query_labels).float().mean())
            parts["isolated"].append((of_queries.sum(-1) == 0).float().mean())
        terms = {name: torch.stack(values).mean() for name, values in parts.items()}
        return LossTerms(terms["nll"], {name: value.detach() for name, value in terms.items()})
