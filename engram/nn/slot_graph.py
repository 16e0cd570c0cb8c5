"""The paper's graph with its history by slot, on tasks: inductive graphs, the states handed on, and their shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engram.errors import EngramError
from engram.nn import graph
from engram.nn.continual_graph import ContinualGraph, GraphAnswer
from engram.nn.evidence import Task


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
        edges, drawn, hidden, degrees = self(nodes, labels, task.n_way, state, samples)
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
