"""What heads share: means by label, distances, labels as rows, base classes, and propagation of labels."""

import numpy as np
import pytest
import torch
from torch import nn

from engram.errors import EngramError
from engram.nn.backbones import build_backbone
from engram.nn.heads import (
    check_ways,
    class_means,
    class_sums,
    cosine_logits,
    distances,
    joint_nll,
    neighbour_graph,
    one_hot,
    propagate,
    set_aside,
    squared_distances,
)


def test_squared_distances_agree_with_loops() -> None:
    a, b = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    for i in range(3):
        for j in range(4):
            expected = ((a[:, i] - b[:, j]) ** 2).sum(-1)
            assert torch.allclose(squared_distances(a, b)[:, i, j], expected, atol=1e-4)


def test_unlabelled_supports_do_not_enter_a_mean() -> None:
    features, labels = torch.randn(1, 4, 3), torch.tensor([[0, 1, -1, 0]])
    means = class_means(features, labels, 2)
    assert torch.allclose(means[0, 0], (features[0, 0] + features[0, 3]) / 2)
    assert torch.allclose(means[0, 1], features[0, 1])
    assert one_hot(labels, 2)[0, 2].tolist() == [0, 0]


def test_sums_are_means_times_members() -> None:
    features, labels = torch.randn(1, 5, 3), torch.tensor([[0, 1, -1, 0, 0]])
    expected = class_means(features, labels, 3) * torch.tensor([3.0, 1.0, 0.0])[:, None]
    assert torch.allclose(class_sums(features, labels, 3), expected, atol=1e-6)
    assert not class_means(features, labels, 3)[0, 2].any()  # a class without members lies at 0, not at nan


def test_a_cosine_distance_does_not_know_lengths() -> None:
    a, b = torch.randn(1, 2, 4), torch.randn(1, 3, 4)
    found = distances(a, b, "cosine")
    assert torch.allclose(found, distances(3 * a, 0.1 * b, "cosine"), atol=1e-6)
    assert torch.allclose(found, 1 - torch.cosine_similarity(a[:, :, None], b[:, None], -1), atol=1e-6)
    assert torch.equal(distances(a, b, "euclidean"), squared_distances(a, b))


def test_weights_tied_to_the_ways_meet_other_ways() -> None:
    check_ways(5, 5, "GNN")
    with pytest.raises(EngramError, match=r"GNN was built for 5 ways but the task has 3: .* train with .* n_way = 3"):
        check_ways(3, 5, "GNN")


def test_what_is_left_and_where_it_stands():
    ids = torch.tensor([[4, 0], [1, 2]])
    kept, column = set_aside(ids, 6)
    assert kept.tolist() == [[1, 2, 3, 5], [0, 3, 4, 5]]
    assert column.tolist() == [[-1, 0, 1, 2, -1, 3], [0, -1, -1, 1, 2, 3]]
    many = torch.stack([torch.randperm(64)[:5] for _ in range(20)])
    kept, column = set_aside(many, 64)
    for b in range(20):
        expected = [c for c in range(64) if c not in many[b].tolist()]
        assert kept[b].tolist() == expected
        assert [int(column[b, c]) for c in expected] == list(range(59))


def test_setting_aside_looks_at_no_number():
    kept, column = set_aside(torch.zeros(3, 5, dtype=torch.int64, device="meta"), 64)
    assert kept.shape == (3, 59) and column.shape == (3, 64)


def test_joint_cross_entropy_in_loops():
    logits, columns = torch.randn(2, 5, 4), torch.tensor([[0, 3, -1, 2, 1], [-1, -1, 1, 0, 2]])
    losses = []
    for b in range(2):
        for i in range(5):
            if columns[b, i] >= 0:
                row = np.exp(logits[b, i].double().numpy())
                losses.append(-np.log(row[columns[b, i]] / row.sum()))
    assert joint_nll(logits, columns).item() == pytest.approx(np.mean(losses), rel=1e-5)
    assert joint_nll(logits, torch.full((2, 5), -1)).item() == 0  # nobody left is no reason for nan


def test_cosines_know_no_lengths():
    features, weights = torch.randn(3, 4, 6), torch.randn(5, 6)
    found = cosine_logits(features, weights, torch.tensor(3.0))
    expected = 3 * torch.nn.functional.cosine_similarity(features[:, :, None], weights[None, None], dim=-1)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(cosine_logits(7 * features, 0.1 * weights, torch.tensor(3.0)), expected)


def test_features_of_the_signed_encoder_have_both_signs():
    backbone = build_backbone("conv64_signed", (3, 84, 84), {}).eval()
    assert backbone.out_shape == (1600,)
    assert build_backbone("conv64_signed", (3, 84, 84), {"widths": [64, 64, 128, 128]}).out_shape == (3200,)
    features = backbone(torch.randn(2, 3, 84, 84))
    assert features.min() < 0 < features.max()


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
