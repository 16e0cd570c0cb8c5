"""Content memory: CML-BGNN's question, what earlier tasks can tell of this one, without its slots. No paper's method.

Memory is a bounded set of what was seen. In a named stream a class gathers its past supports and, at a smaller weight,
past queries as they were answered; without names, past pictures or classes join the class they look like, or none. More
evidence behind a class means less variance of its edges. Caveat: a metric and three numbers are all that is learned;
what an unlabelled picture is worth is a setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, prod
from typing import Literal

import torch
from torch import Tensor, nn

from engram.errors import EngramError, check_settings, check_within
from engram.nn import graph
from engram.nn.bayes import bayes_loss
from engram.nn.content_graph import ContentGraph
from engram.nn.evidence import Reading
from engram.nn.slot_graph import GraphAnswer
from engram.nn.steps import answer_in_turn, answer_together, equal_shapes, stacked_task
from engram.types import EmbeddingMethod, Episode, History, LossTerms, MethodCard, Prediction, TrainBatch


@dataclass(frozen=True)
class ContentMemoryConfig(Reading):
    """The fields of `Reading`, what unlabelled pictures are worth, and these."""

    n_layers: int = 3
    """rounds in which queries and past pictures join the classes"""
    width: int = 96
    """of the learned metric; 0 takes the features as they come, and nothing is learned"""
    scale: float = 10.0
    """of the edges, k, where training starts; a few small steps leave it there, so it says how sure answers are"""
    capacity: int = 10240
    """entries remembered: 2 N of a named task, S + Q or (together) N of an anonymous one; the oldest task goes first"""
    bayes: Literal["task", "none"] = "task"
    """edges with the variance that the evidence leaves, or with none"""
    gamma: float = 1.0
    """weight of L_B; 0 leaves it out"""
    train_samples: int = 10
    test_samples: int = 0
    """0 takes the expectation by quadrature, which is deterministic; M > 0 draws M samples"""
    transductive: bool = True

    def __post_init__(self) -> None:
        if self.bayes != "none" and self.gamma > 0 and self.train_samples < 2:
            raise EngramError(
                f"gamma = {self.gamma} needs train_samples of at least 2, not {self.train_samples}; or set gamma = 0"
            )
        check_within(self, n_layers=1, width=0, capacity=1, train_samples=1, test_samples=0)
        check_settings(self, ("scale", self.scale > 0, "it must be above 0"))


class ContentMemory(EmbeddingMethod):
    Config = ContentMemoryConfig
    config: ContentMemoryConfig
    card = MethodCard(
        title="Content memory",
        paper="ours, after CML-BGNN by Luo et al., AAAI 2020",
        transductive=True,
        continual=True,
        by_class_means=True,
        samples_key="test_samples",
        departures=(
            "Nodes and edges, equations 5 and 7. Paper: node and edge networks. Ours: class means and cosines under a "
            "learned metric.",
            "Past, equation 6. Paper: a learned gate over what the slot held. Ours: past and present of a class are "
            "mixed by how many pictures stand behind each.",
            "Variance of edges, equation 9. Paper: a network infers it. Ours: it falls with the evidence for a class.",
            "Loss, equation 11. Paper: the sum over the layers. Ours: one layer of edges, those of the answer.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: ContentMemoryConfig) -> None:
        super().__init__(backbone, config)
        inputs = prod(backbone.out_shape)  # type: ignore[arg-type]
        self.bayes = config.bayes != "none"
        sizes = (inputs, config.width, config.n_layers, config.capacity)
        self.graph = ContentGraph(*sizes, self.bayes, config.transductive, config)
        nn.init.constant_(self.graph.evidence.log_scale, log(config.scale))
        stochastic = self.bayes and config.test_samples > 0
        key = type(self).card.samples_key if self.bayes else ""
        self.card = replace(type(self).card, transductive=config.transductive, stochastic=stochastic, samples_key=key)

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        return self._classify([episode], history)[0]

    def predict_sequence(self, episodes: Sequence[Episode], history: History = ()) -> tuple[Prediction, ...]:
        return self._classify(self.embed(episodes), history)

    def _classify(self, episodes: Sequence[Episode], history: History) -> tuple[Prediction, ...]:
        """Predictions from features."""
        keep = self.card.stochastic or (self.training and self.bayes)
        return tuple(Prediction(*parts) for parts in answer_in_turn(self.graph, episodes, history, self._samples, keep))

    @property
    def _samples(self) -> int:
        return self.config.train_samples if self.training else self.config.test_samples

    def loss(self, batch: TrainBatch) -> LossTerms:
        """L_E + gamma L_B, each a mean over steps and tasks: query edges, and the log of averaged class samples."""
        episodes = self.embed(batch.episodes)
        if (shapes := len(equal_shapes(episodes))) > 1:
            raise EngramError(f"a sequence of {len(episodes)} steps has {shapes} shapes; history needs one")
        query_labels = torch.stack([answers.query_labels for answers in batch.answers])
        self.graph.begin(stacked_task(episodes), query_labels)
        answer, _ = answer_together(self.graph, episodes, (), self._samples)
        labels = torch.cat([torch.stack([e.support_labels for e in episodes]), query_labels], -1)
        with torch.autocast(labels.device.type, enabled=False):
            terms = self._terms(answer, labels, query_labels)
        total = terms["edge"] + self.config.gamma * terms["bayes"] if "bayes" in terms else terms["edge"]
        return LossTerms(total, {name: value.detach() for name, value in terms.items()})

    def _terms(self, answer: GraphAnswer, labels: Tensor, query_labels: Tensor) -> dict[str, Tensor]:
        """Labels of all nodes (T, B, V), of the queries (T, B, Q)."""
        target, mask = graph.query_edges(labels, query_labels.shape[-1], True, self.config.transductive)
        terms = {"edge": graph.edge_loss(answer.edges[-1], target, mask, balanced=False)}
        if self.bayes and self.config.gamma > 0:
            terms["bayes"] = bayes_loss(answer.class_samples, query_labels)
        terms["accuracy"] = (answer.class_samples.mean(0).argmax(-1) == query_labels).float().mean()
        terms["edge_accuracy"] = graph.edge_accuracy(answer.edges[-1], target, mask)
        return terms
