"""The graph network of CML-BGNN over T steps of time: node update, gate, edge scores, Bayesian edges, layer by layer.

A node of layer k + 1 at time t needs layer k at time t, and a hidden state of layer k needs its own past only. So each
layer runs for all T steps before the next begins, and only the gate has to walk through time.
"""

from __future__ import annotations

from math import log
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError
from engram.nn import graph
from engram.nn.bayes import EdgePosterior, LogitPosterior, Quadrature, TaskPosterior
from engram.nn.evidence import Task
from engram.nn.history import LibraryGate, PaperGate
from engram.nn.pairs import on_pairs


class GraphAnswer(NamedTuple):
    edges: Tensor
    """(L, T, B, V, V) probability that i and j are of one class, expected over the samples; 1 on the diagonal"""
    class_samples: Tensor
    """(M, T, B, Q, n_way) class probabilities of the last layer; M = 1 where nothing is sampled"""
    hidden: Tensor | None
    """(T, B, L, V, width) hidden states after each step; None without history"""
    log10_smallest_degrees: Tensor | None = None
    """(L,) of the smallest D of equation 7 in each layer, in training with the paper's edges; else None"""
    votes: Tensor | None = None
    """(M, T, B, Q, n_way) edges of queries and classes, of which class_samples are the shares; None: they are not"""


class LayerEdges(NamedTuple):
    expected: Tensor
    """(N, V, V) probabilities"""
    drawn: Tensor
    """(M, N, V, V) samples of them"""
    onward: Tensor
    """for the next layer"""
    log_degrees: Tensor | None = None
    """(N, V) log D of equation 7, in the paper's form"""


class GraphLayer(nn.Module):
    """One layer: node update (equation 5), edge scores (equation 7), Bayesian edges (equations 9 and 10).

    ``edges`` are a normalised adjacency (N, V, V) in the paper's form, two channels (N, 2, V, V) in EGNN's.
    """

    def __init__(self, inputs: int, width: int, form: str, node_net: str, bayes: str, dropout: float) -> None:
        super().__init__()
        self.paper_form = form == "paper"
        copies = 2 if self.paper_form else 3  # a node and one neighbourhood per edge channel
        sizes = [copies * inputs, 2 * width, width]
        self.node_net = graph.PointwiseNet(sizes, dropout=dropout, last_activation=node_net == "egnn")
        self.edge_net = graph.edge_net(width, dropout)
        self.quadrature = Quadrature()
        self.posterior: TaskPosterior | EdgePosterior | None = None
        if bayes != "none":
            self.posterior = TaskPosterior(width) if bayes == "task" else EdgePosterior(width, dropout)

    def first_edges(self, labels: Tensor) -> Tensor:
        """Equation 4; normalised in the paper's form, or sums over neighbours would grow with the number of queries."""
        edges = graph.initial_edges(labels)
        return graph.symmetric_normalisation(edges.log())[0] if self.paper_form else graph.two_channels(edges)

    def update_nodes(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Equation 5. (N, V, inputs) -> (N, V, width)"""
        gathered = (graph.aggregate if self.paper_form else graph.aggregate_two_channels)(nodes, edges)
        updated: Tensor = self.node_net(gathered)
        return updated

    def update_edges(self, hidden: Tensor, edges: Tensor, samples: int) -> LayerEdges:
        """Equations 7 and 10.

        In the paper's form the adjacency goes on and the Bayesian probability is only read out; in EGNN's form the
        probability updates the edges, and the update with the mean of the M samples goes on.
        """
        pairs = graph.differences(hidden)
        score = evidence = on_pairs(self.edge_net, pairs)[..., 0]
        if self.paper_form:
            adjacency, log_degrees = graph.symmetric_normalisation(F.logsigmoid(score))
            # V * A is 1 on average whatever the size of the graph, so one W serves every number of queries.
            evidence = adjacency * adjacency.shape[-1]
        if self.posterior is None:
            probability = torch.sigmoid(score)[None]
        else:
            probability = self._infer(hidden, pairs, evidence, samples)
        if self.paper_form:
            probability = torch.maximum(probability, torch.eye(score.shape[-1], device=score.device))
            return LayerEdges(probability.mean(0), probability, adjacency, log_degrees)
        updated = graph.update_two_channels(probability.mean(0), edges)
        several = updated[None] if len(probability) == 1 else graph.update_two_channels(probability, edges[None])
        return LayerEdges(updated[:, 0], several[:, :, 0], updated)

    def _infer(self, hidden: Tensor, pairs: Tensor, score: Tensor, samples: int) -> Tensor:
        """Samples (M, N, V, V) of sigmoid(W s + b), or their expectation with M = 1 where ``samples`` is 0."""
        assert self.posterior is not None
        posterior: LogitPosterior = self.posterior(hidden, pairs, score)
        if samples:
            return posterior.sample(samples)
        expectation: Tensor = self.quadrature(*posterior.moments())
        return expectation[None]


class ContinualGraph(nn.Module):
    """Equations 4 to 10. Keywords as in the method's configuration; ``n_gates`` is 0, 1 (shared) or n_layers.

    Shapes: nodes (T, B, V, inputs), support labels (T, B, S), state (B, L, V, width) -> `GraphAnswer`
    """

    def __init__(
        self,
        inputs: int,
        n_layers: int,
        width: int,
        edges: Literal["paper", "egnn"],
        node_net: Literal["paper", "egnn"],
        gate: Literal["paper", "library"],
        n_gates: int,
        next_layer: Literal["node", "hidden"],
        bayes: Literal["task", "edge", "none"],
        dropout: float,
    ) -> None:
        super().__init__()
        self.next_layer = next_layer
        rates = [dropout] * (n_layers - 1) + [0.0]  # none in the last layer, whose edges are the answer
        self.layers = nn.ModuleList(
            GraphLayer(width if k else inputs, width, edges, node_net, bayes, rate) for k, rate in enumerate(rates)
        )
        self.gates = nn.ModuleList((PaperGate if gate == "paper" else LibraryGate)(width) for _ in range(n_gates))

    def forward(
        self, nodes: Tensor, support_labels: Tensor, n_way: int, state: Tensor | None = None, samples: int = 0
    ) -> GraphAnswer:
        time, n_support = nodes.shape[:2], support_labels.shape[-1]
        nodes, labels = nodes.flatten(0, 1), support_labels.flatten(0, 1)
        all_edges: list[Tensor] = []
        all_hidden: list[Tensor] = []
        degrees: list[Tensor] = []
        for k, layer in enumerate(self.layers):
            assert isinstance(layer, GraphLayer)
            if k == 0:
                edges = layer.first_edges(graph.all_labels(labels, nodes.shape[1] - n_support))
            nodes = seen = layer.update_nodes(nodes, edges)
            if self.gates:
                all_hidden.append(self._remember(k, nodes.unflatten(0, time), state))
                seen = all_hidden[-1].flatten(0, 1)
            expected, drawn, edges, log_degrees = layer.update_edges(seen, edges, samples)
            all_edges.append(expected)
            if self.training and log_degrees is not None:
                degrees.append(log_degrees.detach().amin() / log(10))
            nodes = nodes if self.next_layer == "node" else seen
        votes = graph.class_vote(drawn[:, :, n_support:, :n_support], labels, n_way)
        return GraphAnswer(
            torch.stack(all_edges).unflatten(1, time),
            votes.unflatten(1, time),
            torch.stack(all_hidden, 2) if all_hidden else None,
            torch.stack(degrees) if degrees else None,
        )

    def _remember(self, k: int, nodes: Tensor, state: Tensor | None) -> Tensor:
        """Equation 6 for all T steps of layer k, from h_0 = 0 or from the given past. (T, B, V, width), same again"""
        past = nodes.new_zeros(nodes.shape[1:]) if state is None else state[:, k]
        hidden: Tensor = self.gates[k % len(self.gates)](nodes, past)  # a single gate serves every layer
        return hidden


class SlotGraph(ContinualGraph):
    """`ContinualGraph` over a `Task`; where it is not transductive every query has a graph of its own.

    History is one tensor (B, L, V, width) of hidden states, inductive (B, Q, L, S + 1, width); without gates, nothing.
    """

    def __init__(self, inputs: int, transductive: bool, **settings: Any) -> None:
        super().__init__(inputs, **settings)
        self.transductive, self.width = transductive, settings["width"]

    def answer(
        self, task: Task, history: tuple[Tensor, ...], samples: int
    ) -> tuple[GraphAnswer, list[tuple[Tensor, ...]]]:
        support, labels, query = task.support, task.labels, task.query
        n_tasks, n_query = query.shape[1:3]
        if not self.transductive:
            support, labels, query = graph.one_graph_per_query(support, labels, query)
        nodes = torch.cat([support, query], 2)
        state = self._state(history, n_tasks, nodes)
        edges, drawn, hidden, degrees, _ = self(nodes, labels, task.n_way, state, samples)
        if not self.transductive:  # B * Q graphs become B tasks again
            edges = graph.merge_query_graphs(edges, n_query)
            drawn = drawn.squeeze(-2).unflatten(2, (-1, n_query))
            hidden = None if hidden is None else hidden.unflatten(1, (-1, n_query))
        histories: list[tuple[Tensor, ...]] = [() if hidden is None else (hidden[step],) for step in range(len(query))]
        return GraphAnswer(edges, drawn, hidden, degrees), histories

    def _state(self, history: tuple[Tensor, ...], n_tasks: int, nodes: Tensor) -> Tensor | None:
        """The slots' past, refused where it is of another shape."""
        if not self.gates or not history:
            return None
        queries = () if self.transductive else (nodes.shape[1] // n_tasks,)
        wanted = (n_tasks, *queries, len(self.layers), nodes.shape[2], self.width)
        found = [tuple(part.shape) for part in history]
        if found != [wanted]:
            raise EngramError(
                f"the history holds {found} but these tasks need one tensor {wanted}: keep batch, ways, shots and "
                f"queries the same along a stream, or start it anew with history=()"
            )
        return history[0].float().view(nodes.shape[1], *wanted[-3:])
