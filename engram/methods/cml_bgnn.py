"""CML-BGNN: Luo et al., Learning from the Past: Continual Meta-Learning with Bayesian Graph Neural Networks, AAAI 2020.

Every task is a complete graph over its supports and queries. Each layer updates the nodes from their neighbours, lets a
recurrent gate mix in what the slot held in earlier tasks, scores all edges anew and infers the weights of the scores in
a Bayesian way; queries are read off their edges to the supports. Caveat: the gate's memory is addressed by SLOT, so it
means something only where slots keep their class from task to task, an artefact of the order queries are listed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from engram.card import REVISIONS
from engram.errors import EngramError, nearest
from engram.nn import graph
from engram.nn.bayes import bayes_loss
from engram.nn.slot_graph import GraphAnswer, SlotGraph
from engram.nn.steps import answer_in_turn, answer_together, equal_shapes, slot_by_slot
from engram.types import EmbeddingMethod, Episode, History, LossTerms, MethodCard, Prediction, TrainBatch


@dataclass(frozen=True)
class CmlBgnnConfig:
    """The defaults are the preset "paper"; ``preset("public")`` is the authors' released code."""

    n_layers: int = 3
    width: int = 96
    edges: Literal["paper", "egnn"] = "paper"
    """One channel, symmetric normalisation; or EGNN's two channels with the previous edges as prior."""
    node_net: Literal["paper", "egnn"] = "paper"
    """Two convolutions with one LeakyReLU between them; or one after each."""
    gate: Literal["paper", "library"] = "paper"
    shared_gate: bool = False
    """One gate for all layers (their states stay apart)."""
    history: Literal["none", "slot"] = "slot"
    """"none" is the paper's "w/o C": h = v and no gate at all."""
    next_layer: Literal["node", "hidden"] = "node"
    """What the next layer sees: the node before the gate, or the hidden state."""
    bayes: Literal["task", "edge", "none"] = "task"
    """One W and b per task, one per edge, or (the paper's "w/o B") none."""
    gamma: float = 1.0
    """Weight of L_B; 0 leaves it out."""
    layer_loss: Literal["sum", "weighted"] = "sum"
    balanced_edges: bool = False
    loss_edges: Literal["query_support", "query_any"] = "query_support"
    """Edges in L_E: query rows and support columns; or every edge with a query at either end."""
    train_samples: int = 10
    test_samples: int = 0
    """0 takes the expectation by quadrature, which is deterministic; M > 0 draws M samples."""
    transductive: bool = True
    dropout: float = 0.3
    encoder_calls: Literal["one", "slot"] = "one"
    """In training: one for all images of a step, or one for each slot, whose BatchNorm sees one image of every task."""

    def __post_init__(self) -> None:
        if self.bayes != "none" and self.gamma > 0 and self.train_samples < 2:
            raise EngramError(
                f"gamma = {self.gamma} needs train_samples of at least 2, not {self.train_samples}; or set gamma = 0"
            )
        if self.n_layers < 1 or self.train_samples < 1 or self.test_samples < 0:
            raise EngramError("n_layers and train_samples must be at least 1 and test_samples at least 0")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> CmlBgnnConfig:
        """``paper`` or ``public``, with keywords changed where asked."""
        if name not in PRESETS:
            raise EngramError(f"there is no preset '{name}'{nearest(name, PRESETS)}")
        return cls(**{**PRESETS[name], **changes})


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "public": {
        "edges": "egnn",
        "node_net": "egnn",
        "gate": "library",
        "shared_gate": True,
        "bayes": "edge",
        "gamma": 0.0,
        "layer_loss": "weighted",
        "balanced_edges": True,
        "loss_edges": "query_any",
        "train_samples": 1,
    },
}


class CmlBgnn(EmbeddingMethod):
    Config = CmlBgnnConfig
    config: CmlBgnnConfig
    card = MethodCard(
        title="CML-BGNN",
        paper="Luo et al., Learning from the Past: Continual Meta-Learning with Bayesian Graph Neural Networks, 2020",
        transductive=True,
        continual=True,
        slot_memory=True,
        semi_supervised=True,
        samples_key="test_samples",
        departures=(
            "Adjacency. Paper: one channel, D^-1/2 A D^-1/2, the first one raw. Public code: two channels, EGNN's "
            "row-wise update with the edges before as a prior. Ours: `edges`; in the paper's form the first is "
            "normalised too, or sums would grow with the queries, and D leaves out self-loops.",
            "Embedding. Paper: all sizes 96. Public code: the encoder ends in 128, nodes and edges have 96. Ours: the "
            "backbone's setting.",
            "Node network. Paper: two convolutions, one LeakyReLU, dropout, no BatchNorm named. Public code: 3d -> 2d "
            "-> d, BatchNorm and LeakyReLU after each. Ours: `node_net`, BatchNorm after both convolutions in either "
            "form.",
            "Edge network. Paper: four blocks, no sigmoid named. Public code: d -> 2d -> 2d -> d -> d -> 1. Ours: the "
            "public code's, with a sigmoid.",
            "Gate. Paper: h = h~ z + h' (1 - z), reset inside U_h(r h'). Public code: a library cell, z of opposite "
            "sense, reset after the product, one cell for all layers. Ours: `gate`, `shared_gate`; each layer carries "
            "its own state, as in the public code.",
            "What the next layer sees. Paper: not stated. Public code: the node before the gate. Ours: the same; "
            "`next_layer` changes it.",
            "Bayesian edges. Paper: W and b per task, score A. Public code: per edge from |h_i - h_j|, one sample, "
            "also at test, no L_B. Ours: `bayes`; per task the score is V * A, so that W does not depend on the size "
            "of the graph.",
            "Expectation at test. Public code: one sample. Ours: 24 Gauss-Hermite nodes, and the vote is taken on the "
            "expected edges; `test_samples = M` averages the class probabilities of M samples.",
            "Without Bayesian edges. Paper: predicts with A, which cannot reach 1. Ours: with A~, the sigmoid of the "
            "scores.",
            "Layer losses. Paper: plain sum. Public code: 0.5 for inner layers, 1 for the last, positives and "
            "negatives balanced. Ours: `layer_loss`, `balanced_edges`.",
            "Hidden labels. Public code: edges of unlabelled supports are scored with their true labels in training. "
            "Ours: never scored, and only labelled supports vote.",
            "Schedule. Paper: Adam 1e-3, weight decay 1e-6, 70,000 or 160,000 steps. Public code: 100,000 or 160,000, "
            "halved every 15,000 or 30,000, no dropout on tieredImageNet. Ours: the recipe.",
            "Test. Paper: not stated. Public code: 1 query per class, 10,000 tasks, interval over batch means. Ours: 1 "
            "and 15 queries per class, interval over independent sequences.",
            "Steps and batch. Paper: T = 8, 80 or 64 tasks. Public code: 16 steps and batch 128 in training, 8 at "
            "test, BatchNorm step by step. Ours: the paper's, BatchNorm over all steps together in training.",
            "Encoder calls. Public code: one per slot of the batch, half of the tasks on each of two GPUs, so that "
            "BatchNorm sees 40 images in training. Ours: one for all images, 800 at one shot, unless "
            '`encoder_calls = "slot"`.',
            "Queries. Paper: not stated. Public code: in class order in every task. Ours: shuffled.",
            "Start of norms. Public code: weights of BatchNorm uniform in (0, 1), PyTorch's default before 1.2. Ours: "
            '1, unless the recipe says `norm_start = "uniform"`.',
        ),
        revisions=REVISIONS["cml_bgnn"],
    )

    def __init__(self, backbone: nn.Module, config: CmlBgnnConfig) -> None:
        super().__init__(backbone, config)
        self.graph = _graph(prod(backbone.out_shape), config)  # type: ignore[arg-type]
        self.card = replace(
            type(self).card,
            transductive=config.transductive,
            continual=config.history != "none",
            slot_memory=config.history == "slot",
            stochastic=config.bayes != "none" and config.test_samples > 0,
            samples_key=type(self).card.samples_key if config.bayes != "none" else "",
        )

    def embed(self, episodes: Sequence[Episode]) -> list[Episode]:
        if not self.training or self.config.encoder_calls == "one":
            return super().embed(episodes)
        return slot_by_slot(self.backbone, episodes)

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        return self._classify([episode], history)[0]

    def predict_sequence(self, episodes: Sequence[Episode], history: History = ()) -> tuple[Prediction, ...]:
        return self._classify(self.embed(episodes), history)

    def _classify(self, episodes: Sequence[Episode], history: History) -> tuple[Prediction, ...]:
        """Predictions from features."""
        keep = self.card.stochastic or (self.training and self.config.bayes != "none")
        return tuple(Prediction(*parts) for parts in answer_in_turn(self.graph, episodes, history, self._samples, keep))

    @property
    def _samples(self) -> int:
        return self.config.train_samples if self.training else self.config.test_samples

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Equation 11: L_E + gamma L_B, each a mean over steps and tasks."""
        groups = equal_shapes(self.embed(batch.episodes))
        if self.config.history != "none" and len(groups) > 1:
            raise EngramError(f"a sequence of {len(batch.episodes)} steps has {len(groups)} shapes; history needs one")
        answers, parts = iter(batch.answers), []
        for group in groups:
            query_labels = torch.stack([next(answers).query_labels for _ in group])
            answer, _ = answer_together(self.graph, group, (), self._samples)
            with torch.autocast(query_labels.device.type, enabled=False):
                terms = self._terms(group, answer, query_labels)
            parts.append({name: value * (len(group) / len(batch.episodes)) for name, value in terms.items()})
        terms = {name: torch.stack([part[name] for part in parts]).sum() for name in parts[0]}
        total = terms["edge"] + self.config.gamma * terms["bayes"] if "bayes" in terms else terms["edge"]
        return LossTerms(total, {name: value.detach() for name, value in terms.items()})

    def _terms(self, episodes: Sequence[Episode], answer: GraphAnswer, query_labels: Tensor) -> dict[str, Tensor]:
        """L_E, L_B and accuracies of T steps of one shape; query labels (T, B, Q)."""
        config, support_labels = self.config, torch.stack([e.support_labels for e in episodes])
        labels = torch.cat([support_labels, query_labels], -1)
        rows_only = config.loss_edges == "query_support"
        target, mask = graph.query_edges(labels, query_labels.shape[-1], rows_only, config.transductive)
        weights = graph.layer_weights(len(answer.edges), config.layer_loss == "weighted")
        losses = [graph.edge_loss(edges, target, mask, config.balanced_edges) for edges in answer.edges]
        terms = {"edge": torch.stack([w * value for w, value in zip(weights, losses, strict=True)]).sum()}
        if config.bayes != "none" and config.gamma > 0:
            terms["bayes"] = bayes_loss(answer.class_samples, query_labels)
        chosen = answer.class_samples.mean(0).argmax(-1)
        terms["accuracy"] = (chosen == query_labels).float().mean()
        terms["edge_accuracy"] = graph.edge_accuracy(answer.edges[-1], target, mask)
        if answer.log10_smallest_degrees is not None:
            degrees = answer.log10_smallest_degrees.unbind()
            terms |= {f"log10_smallest_degree_{k}": degree for k, degree in enumerate(degrees, 1)}
        return terms


def _graph(inputs: int, config: CmlBgnnConfig) -> SlotGraph:
    n_gates = 0 if config.history == "none" else 1 if config.shared_gate else config.n_layers
    names = ("transductive", "n_layers", "width", "edges", "node_net", "gate", "next_layer", "bayes", "dropout")
    return SlotGraph(inputs, n_gates=n_gates, **{name: getattr(config, name) for name in names})
