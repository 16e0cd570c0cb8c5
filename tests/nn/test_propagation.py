"""Label propagation: who is tied to whom, and where labels come to rest."""

import torch
from torch import nn

from engram.nn.propagation import neighbour_graph, propagate


def test_copies_of_a_node_are_all_neighbours_or_none() -> None:
    """Equal pictures come back in a stream: which of them stands first must not decide who is tied to whom."""
    nodes = nn.functional.normalize(torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    nodes = torch.cat([nodes, nodes[:, :2], nodes[:, :2]], 1)
    order = torch.tensor([8, 3, 0, 9, 5, 7, 1, 2, 6, 4])
    present = torch.ones(1, 10, dtype=torch.bool)
    graph, permuted = (neighbour_graph(n, present, 2, 0.1) for n in (nodes, nodes[:, order]))
    assert torch.allclose(graph[:, order][:, :, order], permuted, atol=1e-6)


def test_absent_nodes_change_nothing() -> None:
    nodes = nn.functional.normalize(torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    padded = torch.cat([nodes, torch.zeros(1, 3, 4)], 1)
    present = torch.arange(8)[None] < 5
    graph = neighbour_graph(padded, present, 6, 0.1)
    assert torch.allclose(graph[:, :5, :5], neighbour_graph(nodes, present[:, :5], 6, 0.1), atol=1e-6)
    assert not graph[:, 5:].any() and not graph[:, :, 5:].any()


def test_ties_are_symmetric_and_no_eigenvalue_is_above_one() -> None:
    nodes = nn.functional.normalize(torch.randn(3, 9, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    graph = neighbour_graph(nodes, torch.ones(3, 9, dtype=torch.bool), 2, 0.1)
    torch.testing.assert_close(graph, graph.transpose(1, 2))
    assert not graph.diagonal(dim1=1, dim2=2).any()
    assert ((graph > 0).sum(-1) >= 2).all() and (graph == 0).sum() > 9 * 3  # near ones only
    assert torch.linalg.eigvalsh(graph.double()).max() < 1 + 1e-6


def test_labels_come_to_rest_where_walks_of_every_length_bring_them() -> None:
    """Slow oracle: (I - alpha S)^-1 Y is the sum of alpha^n S^n Y."""
    nodes = nn.functional.normalize(torch.randn(2, 7, 4, generator=torch.Generator().manual_seed(0)).double(), dim=-1)
    graph = neighbour_graph(nodes, torch.ones(2, 7, dtype=torch.bool), 3, 0.2)
    labels = torch.eye(3).double().repeat(3, 1)[:7].expand(2, 7, 3)
    total = step = labels
    for _ in range(200):
        step = 0.8 * graph @ step
        total = total + step
    assert torch.allclose(propagate(graph, labels, 0.8), total)
