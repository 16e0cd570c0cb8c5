"""`EvidenceGraph` in the form of the other graph core: edges of all nodes, class samples, the history of each step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engram.nn import graph, memory_bank
from engram.nn.bayes import Quadrature
from engram.nn.evidence import EvidenceGraph, Reading, Task
from engram.nn.heads import one_hot
from engram.nn.memory_bank import CLASS, CLASS_QUERIES, CLASS_SUPPORTS, PICTURE, Bank
from engram.nn.slot_graph import GraphAnswer

SHRINKAGE = 0.5


class ContentGraph(nn.Module):
    """History addressed by content. ``capacity`` counts entries: a named task makes 2 N of them (a class's supports and
    its queries as answered), an anonymous one S + Q (its pictures), or N (its classes) where the reading says
    ``together``; the oldest task is forgotten first, as a whole.

    Shapes: support (T, B, S, d), labels (T, B, S), query (T, B, Q, d), names (T, B, N) or None
    """

    started: Tensor

    def __init__(
        self, inputs: int, width: int, n_layers: int, capacity: int, bayes: bool, transductive: bool, reading: Reading
    ) -> None:
        super().__init__()
        self.evidence = EvidenceGraph(inputs, width, n_layers, transductive, reading)
        self.capacity, self.width, self.bayes, self.begun = capacity, width or inputs, bayes, not width
        self.quadrature = Quadrature()
        self.register_buffer("started", torch.tensor(False))

    def answer(
        self, task: Task, history: tuple[Tensor, ...], samples: int
    ) -> tuple[GraphAnswer, list[tuple[Tensor, ...]]]:
        answer = self.evidence(task, self._bank(task, history), self.capacity)
        if self.bayes and samples:
            noise = torch.randn(samples, *answer.mean.shape, device=answer.mean.device)
            drawn = torch.sigmoid(answer.mean + answer.variance.sqrt() * noise)
        else:
            expected = self.quadrature(answer.mean, answer.variance) if self.bayes else torch.sigmoid(answer.mean)
            drawn = expected[None]
        # Far from every class all edges round to 0; the floor keeps the vote defined and symmetric in the classes.
        votes = drawn + 1e-12
        classes = votes / votes.sum(-1, keepdim=True)
        edges = all_edges(drawn.mean(0), classes.mean(0), task.labels)
        histories = memory_bank.histories(answer.bank, answer.now, self.capacity)
        return GraphAnswer(edges[None], classes, None, votes=drawn), histories

    @torch.no_grad()
    def begin(self, task: Task, query_labels: Tensor) -> None:
        """Start from the first batch: centre = mean, metric = orthogonal (S_w + 0.5 mean(S_w) I)^-1/2, S_w the scatter
        within classes. Distances then count each direction by how little it varies inside a class.

        Shapes: `Task` of features, query labels (T, B, Q)
        """
        if self.begun or bool(self.started):  # the buffer is saved and loaded; the flag spares a look at the device
            self.begun = True
            return
        features, labels = torch.cat([task.support, task.query], 2), torch.cat([task.labels, query_labels], -1)
        members = one_hot(labels, int(labels.max()) + 1)
        means = members.transpose(-1, -2) @ features / members.sum(-2)[..., None].clamp(min=1)
        rest = (features - members @ means).flatten(0, 2).double()
        scatter = rest.T @ rest / len(rest)
        values, vectors = torch.linalg.eigh(scatter)
        whitening = vectors @ torch.diag((values.clamp(min=0) + SHRINKAGE * values.mean()).rsqrt()) @ vectors.T
        weight: Tensor = self.evidence.metric.weight  # type: ignore[assignment]
        weight.copy_(weight.double() @ whitening)
        self.evidence.centre.copy_(features.flatten(0, 2).mean(0))
        self.started.fill_(True)

    def _bank(self, task: Task, history: tuple[Tensor, ...]) -> Bank:
        """The history as a bank, refused where it belongs to another model, batch or kind of stream."""
        if task.names is None and self.evidence.reading.together:
            n_entries, kinds, names = task.n_way, {CLASS}, None
        elif task.names is None:
            n_entries, kinds, names = task.support.shape[2] + task.query.shape[2], {PICTURE}, None
        else:
            n_entries, kinds, names = 2 * task.n_way, {CLASS_SUPPORTS, CLASS_QUERIES}, task.names[0]
        memory_bank.check_capacity(self.capacity, n_entries, "content memory")
        like = task.support.new_empty(task.support.shape[1], 0, self.width)
        return memory_bank.from_history(history, like, names, "content memory", kinds)


def all_edges(query_class: Tensor, answers: Tensor, labels: Tensor) -> Tensor:
    """Edges of all nodes from those of queries and classes: supports by their labels, queries by agreement of answers.

    Shapes: query_class, answers (T, B, Q, N), labels (T, B, S) -> (T, B, S + Q, S + Q)
    """
    members = one_hot(labels, answers.shape[-1])
    between = query_class @ members.transpose(-1, -2)
    pairs = answers @ answers.transpose(-1, -2)
    top = torch.cat([graph.initial_edges(labels), between.transpose(-1, -2)], -1)
    edges = torch.cat([top, torch.cat([between, pairs], -1)], -2)
    return torch.maximum(edges, torch.eye(edges.shape[-1], device=edges.device))
