"""`EvidenceGraph` in the form of the other graph core: edges of all nodes, class samples, the history of each step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from engram.errors import EngramError
from engram.nn import graph
from engram.nn.bayes import Quadrature
from engram.nn.continual_graph import GraphAnswer
from engram.nn.evidence import NODE, Bank, EvidenceGraph, Reading, Task
from engram.nn.heads import one_hot

SHRINKAGE = 0.5
PARTS = len(Bank._fields)


class ContentGraph(nn.Module):
    """History addressed by content. ``capacity`` counts entries: a named task makes 2 N of them (a class's supports and
    its queries as answered), an anonymous one S + Q (its pictures); the oldest task is forgotten first, as a whole.

    Shapes: support (T, B, S, d), labels (T, B, S), query (T, B, Q, d), names (T, B, N) or None
    """

    started: Tensor

    def __init__(
        self,
        inputs: int,
        width: int,
        n_layers: int,
        capacity: int,
        bayes: bool,
        transductive: bool,
        reading: Reading,
    ) -> None:
        super().__init__()
        if capacity < 1:
            raise EngramError(
                f"[method] capacity = {capacity} but a memory needs at least 1 entry, or history = 'none'"
            )
        self.evidence = EvidenceGraph(inputs, width, n_layers, transductive, reading)
        self.capacity, self.width, self.bayes, self.begun = capacity, width, bayes, False
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
        steps = self._histories(answer.bank, answer.entries_per_step, len(task.query))
        return GraphAnswer(edges[None], classes, None), steps

    @torch.no_grad()
    def begin(self, tasks: Sequence[tuple[Tensor, Tensor, Tensor]], query_labels: Tensor) -> None:
        """Start from the first batch: centre = mean, metric = orthogonal (S_w + 0.5 mean(S_w) I)^-1/2, S_w the scatter
        within classes. Distances then count each direction by how little it varies inside a class.

        Shapes: T times support (B, S, ...), query (B, Q, ...), support labels (B, S); query labels (T, B, Q)
        """
        if self.begun or bool(self.started):  # the buffer is saved and loaded; the flag spares a look at the device
            self.begun = True
            return
        features = torch.stack([torch.cat([s.flatten(2), q.flatten(2)], 1) for s, q, _ in tasks]).float()
        labels = torch.cat([torch.stack([known for _, _, known in tasks]), query_labels], -1)
        members = one_hot(labels, int(labels.max()) + 1)
        means = members.transpose(-1, -2) @ features / members.sum(-2)[..., None].clamp(min=1)
        rest = (features - members @ means).flatten(0, 2).double()
        scatter = rest.T @ rest / len(rest)
        values, vectors = torch.linalg.eigh(scatter)
        whitening = vectors @ torch.diag((values.clamp(min=0) + SHRINKAGE * values.mean()).rsqrt()) @ vectors.T
        self.evidence.metric.weight.copy_(self.evidence.metric.weight.double() @ whitening)
        self.evidence.centre.copy_(features.flatten(0, 2).mean(0))
        self.started.fill_(True)

    def _bank(self, task: Task, history: tuple[Tensor, ...]) -> Bank:
        """The history as a bank, refused where it belongs to another model, batch or kind of stream."""
        per_step = task.support.shape[2] + task.query.shape[2] if task.names is None else 2 * task.n_way
        if self.capacity < per_step:
            raise EngramError(
                f"[method] capacity = {self.capacity} entries but one of these tasks makes {per_step}: raise capacity"
            )
        batch = task.support.shape[1]
        if not history:
            return Bank.empty(batch, self.width, task.support.device)
        found, wanted = [tuple(part.shape) for part in history], (batch, "entries", self.width)
        fits = len(history) == PARTS and len(found[0]) == 3 and (found[0][0], found[0][2]) == (batch, self.width)
        if not fits or any(shape != found[0][:2] for shape in found[1:]):
            raise EngramError(
                f"the history holds tensors of {found} but content memory needs {PARTS}, the first {wanted}: "
                f"hand on the history of the same model and the same streams, or start anew with history=()"
            )
        bank = Bank(*history)
        if bank.steps.shape[1] and bool((bank.kinds == NODE).any()) != (task.names is None):
            before, here = ("anonymous", "named") if task.names is not None else ("named", "anonymous")
            raise EngramError(f"the stream was {before} so far but this task is {here}: name all of its tasks or none")
        made = int((bank.steps[0] == bank.steps[0, -1:]).sum())
        if made not in (0, per_step):
            raise EngramError(
                f"the tasks so far made {made} entries each but this one makes {per_step}: keep ways, shots and "
                f"queries the same along a stream, or start it anew with history=()"
            )
        return bank

    def _histories(self, bank: Bank, per_step: int, n_steps: int) -> list[tuple[Tensor, ...]]:
        """What is handed on after each step: whole tasks, the newest that fit."""
        kept, total = self.capacity // per_step * per_step, bank.steps.shape[1]
        ends = [total - per_step * (n_steps - 1 - step) for step in range(n_steps)]
        return [tuple(bank.between(end - kept, end)) for end in ends]


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
