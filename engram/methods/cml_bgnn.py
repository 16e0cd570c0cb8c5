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

from engram.errors import EngramError, nearest
from engram.nn import graph
from engram.nn.bayes import bayes_loss
from engram.nn.slot_graph import GraphAnswer, SlotGraph
from engram.nn.steps import equal_shapes, stacked_task
from engram.revisions import REVISIONS
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
            "eq. 4: the initial adjacency is normalised as in eq. 7 (paper: raw), so sums do not grow with the queries",
            "eq. 5: BatchNorm after both convolutions of the node network (paper: none named)",
            "eq. 7: sigmoid after f_e (paper: none named), and no self-loops in D",
            "eq. 10: the score is V * A (paper: A), so that W does not depend on the size of the graph",
            "w/o B predicts with A~ (paper: A), as A cannot reach 1",
            "evaluation takes the expectation by quadrature (public code: one sample)",
            "edges of supports whose label is hidden are never scored (public code: scored in training)",
            "weights of BatchNorm start at 1 unless norm_start says so (public code: uniform in (0, 1))",
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

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        return self._classify([episode], history)[0]

    def predict_sequence(self, episodes: Sequence[Episode], history: History = ()) -> tuple[Prediction, ...]:
        return self._classify(self.embed(episodes), history)

    def _classify(self, episodes: Sequence[Episode], history: History) -> tuple[Prediction, ...]:
        """Predictions from features; steps of one shape run together."""
        predictions: list[Prediction] = []
        for group in equal_shapes(episodes):
            answer, histories = self._answer(group, history)
            samples = answer.class_samples
            for step, log_probs in enumerate(samples.mean(0).log()):
                details = {"edges": answer.edges[:, step].movedim(0, 1)}
                if self.card.stochastic or (self.training and self.config.bayes != "none"):
                    details["samples"] = samples[:, step]
                history = histories[step]
                predictions.append(Prediction(log_probs, history, details))
        return tuple(predictions)

    def _answer(self, episodes: Sequence[Episode], history: History) -> tuple[GraphAnswer, Sequence[History]]:
        """The graph over T steps of one shape, and the history after each. Always in float32."""
        samples = self.config.train_samples if self.training else self.config.test_samples
        with torch.autocast(episodes[0].support.device.type, enabled=False):
            return self.graph.answer(stacked_task(episodes), history, samples)

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Equation 11: L_E + gamma L_B, each a mean over steps and tasks."""
        groups = equal_shapes(self.embed(batch.episodes))
        if self.config.history != "none" and len(groups) > 1:
            raise EngramError(f"a sequence of {len(batch.episodes)} steps has {len(groups)} shapes; history needs one")
        answers, parts = iter(batch.answers), []
        for group in groups:
            query_labels = torch.stack([next(answers).query_labels for _ in group])
            answer, _ = self._answer(group, ())
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
