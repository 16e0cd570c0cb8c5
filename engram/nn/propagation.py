"""Label propagation in closed form on a graph of nearest neighbours."""

from __future__ import annotations

import torch
from torch import Tensor

TIE = 1e-6
"""cosines closer than this count as equal, so that rounding never chooses a neighbour"""


def neighbour_graph(nodes: Tensor, present: Tensor, k: int, temperature: float) -> Tensor:
    """Symmetric ties between near nodes, normalised: S = D^-1/2 W D^-1/2.

    W_ij = exp((cos_ij - 1) / temperature) where i is among the k nearest of j or j among those of i, else 0; ties with
    the k-th are in; no node is its own neighbour, and absent nodes have none.

    Shapes: nodes (B, M, d) unit vectors, present (B, M) bool -> (B, M, M)
    """
    cosine = nodes @ nodes.transpose(1, 2)
    size = nodes.shape[1]
    pairs = present[:, :, None] & present[:, None, :] & ~torch.eye(size, dtype=torch.bool, device=nodes.device)
    ranked = torch.where(pairs, cosine.detach(), -torch.inf)
    least = ranked.topk(min(k, size), -1).values[..., -1:]
    near = (ranked >= least - TIE) & pairs
    weights = torch.where(near | near.transpose(1, 2), ((cosine - 1) / temperature).exp(), 0)
    scale = weights.sum(-1).clamp(min=torch.finfo(nodes.dtype).tiny).rsqrt()
    return scale[:, :, None] * weights * scale[:, None, :]


def propagate(graph: Tensor, labels: Tensor, alpha: float) -> Tensor:
    """F = (I - alpha S)^-1 Y: (B, M, M), (B, M, n) -> (B, M, n). Positive definite, for S has no eigenvalue above 1."""
    identity = torch.eye(graph.shape[1], dtype=graph.dtype, device=graph.device)
    factor = torch.linalg.cholesky_ex(identity - alpha * graph).L  # unchecked: a check would wait for the device
    return torch.cholesky_solve(labels, factor)
