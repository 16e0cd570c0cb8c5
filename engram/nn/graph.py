"""Graphs over one task's images: edges from labels, node and edge updates of the paper and of EGNN, vote, edge loss.

Every function takes tensors with any leading dimensions; V nodes are the S supports, then the Q queries. "Equation"
numbers are those of the CML-BGNN paper, "EGNN step" those of Kim et al. (2019). All of it expects float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn import kernels

EDGE_FLOOR = 1e-6
SLOPE = 0.01
"""of the LeakyReLU in pointwise nets"""


class PointwiseNet(nn.Module):
    """The same small network on every node or edge: blocks dropout(LeakyReLU(BatchNorm(W x))), then W_out x + b.

    A 1x1 convolution with BatchNorm2d, written as a matrix product on rows: BatchNorm sees all positions of all
    graphs jointly, and dropout takes whole channels of a graph, as Dropout2d does.

    Args:
        sizes: widths from the input on; one block per step.
        outputs: width of the final linear map with bias; None ends with the last block.
        grouped: each output sees its own share of the last block's channels: several nets side by side.
        dropout: rate; ``dropout_each`` applies it in every block instead of the last only.
        last_activation: whether the last block has a LeakyReLU (the paper's node network has one for its two blocks).
        bias: whether W has one before BatchNorm takes it away again (GNN's networks do).

    Shapes: (N, ..., sizes[0]) -> (N, ..., outputs or sizes[-1])
    """

    def __init__(
        self,
        sizes: Sequence[int],
        outputs: int | None = None,
        dropout: float = 0.0,
        dropout_each: bool = False,
        last_activation: bool = True,
        grouped: bool = False,
        bias: bool = False,
    ) -> None:
        super().__init__()
        steps = list(pairwise(sizes))
        self.linears = nn.ModuleList(nn.Linear(a, b, bias=bias) for a, b in steps)
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for _, b in steps)
        self.grouped = grouped or outputs == 1
        self.out = None if outputs is None else nn.Linear(sizes[-1] // (outputs if grouped else 1), outputs)
        last = len(steps) - 1
        self.rates = [dropout if dropout_each or i == last else 0.0 for i in range(len(steps))]
        self.active = [last_activation or i < last for i in range(len(steps))]

    def forward(self, x: Tensor, counts: kernels.Counts | None = None) -> Tensor:
        """``counts``: how often each position of a graph counts in BatchNorm, where `kernels.can_count`."""
        graphs, positions = x.shape[0], x.shape[:-1]
        x = x.flatten(0, -2)
        for linear, norm, rate, active in zip(self.linears, self.norms, self.rates, self.active, strict=True):
            dropped = rate if self.training else 0.0
            x = kernels.pointwise(linear(x), norm, SLOPE if active else 1.0, dropped, graphs, counts)
        if self.out is not None:
            x = kernels.group_product(x, self.out.weight, self.out.bias) if self.grouped else self.out(x)
        return x.view(*positions, -1)


def edge_net(width: int, dropout: float) -> PointwiseNet:
    """f_e of equation 7: d -> 2d -> 2d -> d -> d -> 1, the score of an edge before any sigmoid."""
    return PointwiseNet([width, 2 * width, 2 * width, width, width], outputs=1, dropout=dropout, dropout_each=True)


def all_labels(support_labels: Tensor, n_query: int) -> Tensor:
    """Labels of all nodes as `predict` knows them: queries, as unlabelled supports, are -1. (..., S) -> (..., V)"""
    return F.pad(support_labels, (0, n_query), value=-1)


def initial_edges(labels: Tensor) -> Tensor:
    """Equation 4: A_ij = 1 if y_i = y_j, 0 if y_i != y_j, 0.5 where either label is unknown (-1).

    Shapes: (..., V) -> (..., V, V)
    """
    known = labels >= 0
    same = (labels[..., :, None] == labels[..., None, :]).float()
    return torch.where(known[..., :, None] & known[..., None, :], same, 0.5)


def without_diagonal(matrix: Tensor) -> Tensor:
    """Zero diagonal: a node is not its own neighbour. (..., V, V) -> (..., V, V)"""
    return matrix * (1 - torch.eye(matrix.shape[-1], device=matrix.device))


def differences(nodes: Tensor) -> Tensor:
    """|h_i - h_j|, element by element. (..., V, d) -> (..., V, V, d)"""
    return (nodes[..., :, None, :] - nodes[..., None, :, :]).abs()


def symmetric_normalisation(log_adjacency: Tensor) -> tuple[Tensor, Tensor]:
    """Equation 7, A = D^-1/2 A~ D^-1/2 with D_ii = sum_{j != i} A~_ij, from log A~: returns A and log D.

        log A_ij = log A~_ij - 1/2 log D_ii - 1/2 log D_jj

    A factor common to all of A~ cancels, so nothing holds its size in training: as logarithms no size is too small.

    Shapes: (..., V, V) -> (..., V, V), (..., V)
    """
    itself = torch.eye(log_adjacency.shape[-1], dtype=torch.bool, device=log_adjacency.device)
    neighbours = log_adjacency.masked_fill(itself, -torch.inf)
    log_degrees = neighbours.logsumexp(-1)
    half = log_degrees / 2
    return (neighbours - half[..., :, None] - half[..., None, :]).exp(), log_degrees


def aggregate(nodes: Tensor, adjacency: Tensor) -> Tensor:
    """Equation 5, inner part: [v_i ; sum_{j != i} A_ij v_j]. The paper prints v_i in the sum; v_j is meant.

    Shapes: (..., V, d), (..., V, V) -> (..., V, 2d)
    """
    return torch.cat([nodes, without_diagonal(adjacency) @ nodes], -1)


def two_channels(similar: Tensor) -> Tensor:
    """EGNN's edge label (similar, dissimilar). (..., V, V) -> (..., 2, V, V)"""
    return torch.stack([similar, 1 - similar], -3)


def row_normalised(edges: Tensor) -> Tensor:
    """EGNN step 2: zero diagonal, then every row of every channel sums to 1. (..., 2, V, V) -> (..., 2, V, V)"""
    return F.normalize(without_diagonal(edges), p=1, dim=-1)


def aggregate_two_channels(nodes: Tensor, edges: Tensor) -> Tensor:
    """EGNN step 2: [v_i ; sum_j A1_ij v_j ; sum_j A2_ij v_j]. (..., V, d), (..., 2, V, V) -> (..., V, 3d)"""
    similar, dissimilar = (row_normalised(edges) @ nodes[..., None, :, :]).unbind(-3)
    return torch.cat([nodes, similar, dissimilar], -1)


def update_two_channels(similarity: Tensor, edges: Tensor) -> Tensor:
    """EGNN step 3: the old edges are a multiplicative prior, and each row keeps its mass.

        E'_c,ij = m_c,i * (s_c,ij E_c,ij) / sum_j (s_c,ij E_c,ij),   m_c,i = sum_{j != i} E_c,ij,   s_1 = s, s_2 = 1 - s

    then the diagonal becomes (1, 0), 1e-6 is added, and the two channels are divided by their sum.

    Shapes: (..., V, V), (..., 2, V, V) -> (..., 2, V, V)
    """
    prior = without_diagonal(edges)
    updated = row_normalised(two_channels(similarity) * prior) * prior.sum(-1, keepdim=True)
    identity = torch.eye(similarity.shape[-1], device=similarity.device)
    updated = updated + torch.stack([identity, torch.zeros_like(identity)]) + EDGE_FLOOR
    return updated / updated.sum(-3, keepdim=True)


def class_vote(edges: Tensor, support_labels: Tensor, n_way: int) -> Tensor:
    """p(c | query) = sum_{j: y_j = c} e_qj, normalised over classes; unlabelled supports have no vote.

    Shapes: (..., Q, S), (..., S) -> (..., Q, n_way)
    """
    membership = support_labels[..., None] == torch.arange(n_way, device=edges.device)
    votes = edges @ membership.to(edges.dtype) + EDGE_FLOOR
    return votes / votes.sum(-1, keepdim=True)


def query_edges(labels: Tensor, n_query: int, query_rows_only: bool, query_pairs: bool) -> tuple[Tensor, Tensor]:
    """Targets 1[y_i = y_j] and the mask of the edges a loss may score; pairs with an unknown label are never scored.

    Args:
        query_rows_only: the paper's M_q and M_s (query rows, support columns), else both directions.
        query_pairs: whether query-query edges count (EGNN's transductive graphs, self-loops among them).

    Shapes: labels (..., V), now with the queries' true labels -> targets, mask (..., V, V) float
    """
    is_query = torch.arange(labels.shape[-1], device=labels.device) >= labels.shape[-1] - n_query
    row, column = is_query[:, None], is_query[None, :]
    allowed = row & ~column if query_rows_only else (row ^ column) | (row & column & query_pairs)
    known = labels >= 0
    mask = allowed & known[..., :, None] & known[..., None, :]
    return (labels[..., :, None] == labels[..., None, :]).float(), mask.float()


def edge_loss(probability: Tensor, target: Tensor, mask: Tensor, balanced: bool) -> Tensor:
    """L_E of one layer: binary cross-entropy over the masked edges, a plain mean or (EGNN step 6) mean over positive
    edges plus mean over negative edges. (..., V, V) three times -> scalar"""
    entropy = F.binary_cross_entropy(probability, target, reduction="none")

    def mean(weight: Tensor) -> Tensor:
        return (entropy * weight).sum() / weight.sum().clamp_min(1)

    return mean(mask * target) + mean(mask * (1 - target)) if balanced else mean(mask)


def edge_accuracy(probability: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Share of the masked edges on the right side of one half."""
    right = ((probability > 0.5) == (target > 0.5)).float()
    return (right * mask).sum() / mask.sum().clamp_min(1)


def layer_weights(n_layers: int, weighted: bool) -> list[float]:
    """Equation 11 sums the layers; EGNN takes 0.5 for inner layers and 1 for the last, divided by their number."""
    return [(1.0 if k == n_layers - 1 else 0.5) / n_layers if weighted else 1.0 for k in range(n_layers)]


def one_graph_per_query(support: Tensor, labels: Tensor, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inductive tasks: each query alone with its own copy of the supports, graphs of a task side by side.

    Shapes: (..., B, S, d), (..., B, S), (..., B, Q, d) -> (..., B*Q, S, d), (..., B*Q, S), (..., B*Q, 1, d)
    """
    n_query = query.shape[-2]
    supports = support.repeat_interleave(n_query, dim=-3)
    return supports, labels.repeat_interleave(n_query, dim=-2), query.flatten(-3, -2)[..., None, :]


def merge_query_graphs(edges: Tensor, n_query: int) -> Tensor:
    """One matrix per task from its one-query graphs: support pairs averaged; query pairs, which no graph holds, are 0
    (1 on the diagonal). (..., B*Q, S+1, S+1) -> (..., B, S+Q, S+Q)"""
    graphs = edges.unflatten(-3, (-1, n_query))
    supports = graphs[..., :-1, :-1].mean(-3)
    rows, columns = graphs[..., -1, :-1], graphs[..., :-1, -1].transpose(-1, -2)
    diagonal = torch.eye(n_query, device=edges.device).expand(*rows.shape[:-1], n_query)
    return torch.cat([torch.cat([supports, columns], -1), torch.cat([rows, diagonal], -1)], -2)
