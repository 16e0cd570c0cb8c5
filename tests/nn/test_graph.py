"""Every equation against plain loops, and the invariants of the edge-labelling update."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from engram.nn import graph

LABELS = torch.tensor([[0, 1, 2, 0, -1], [2, 1, 0, -1, 2]])  # the -1 supports are unlabelled
N_QUERY = 3


def random_edges(seed: int, batch: int = 2, nodes: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return graph.two_channels(torch.rand(batch, nodes, nodes, generator=generator))


def test_initial_edges_follow_equation_4():
    edges = graph.initial_edges(graph.all_labels(LABELS, N_QUERY)).numpy()
    for task, labels in enumerate(LABELS.tolist()):
        for i in range(8):
            for j in range(8):
                known = i < 5 and j < 5 and labels[i] >= 0 and labels[j] >= 0
                assert edges[task, i, j] == (float(labels[i] == labels[j]) if known else 0.5)


def symmetric_scores(low: float, high: float, size: int = 8) -> np.ndarray:
    scores = np.random.default_rng(0).uniform(low, high, (size, size))
    return np.triu(scores) + np.triu(scores, 1).T


def normalised(scores: np.ndarray | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A and log D in single precision."""
    return graph.symmetric_normalisation(F.logsigmoid(torch.as_tensor(scores, dtype=torch.float32)))


def test_symmetric_normalisation_is_the_matrix_product_of_equation_7():
    scores = symmetric_scores(-6, 6)
    adjacency = 1 / (1 + np.exp(-scores))
    bare = adjacency - np.diag(np.diag(adjacency))
    root = np.diag(bare.sum(1) ** -0.5)
    found, log_degrees = normalised(scores)
    np.testing.assert_allclose(found, root @ bare @ root, rtol=1e-6)
    np.testing.assert_allclose(log_degrees, np.log(bare.sum(1)), atol=1e-6)


@pytest.mark.parametrize("shift", [-40, -200])
def test_a_factor_common_to_all_edges_cancels_however_small(shift):
    """Sigmoids of scores below -12 are exponentials to within 1e-5, and those of a single number underflow at -104."""
    scores = symmetric_scores(-22, -12)
    (near, near_degrees), (far, far_degrees) = normalised(scores), normalised(scores + shift)
    torch.testing.assert_close(far, near, rtol=1e-4, atol=0)
    torch.testing.assert_close(far_degrees, near_degrees + shift, rtol=1e-6, atol=1e-5)
    assert near[near > 0].max() > 10 * near[near > 0].min()  # far from the same everywhere


@pytest.mark.parametrize("level", [-60, -200])
def test_gradients_of_the_smallest_edges_are_those_of_larger_ones(level):
    """A node likes itself (0 on the diagonal), which must neither overflow nor count."""
    gradients = []
    for mean in (-20, level):
        scores = torch.tensor(symmetric_scores(mean - 3, mean + 3)).fill_diagonal_(0).float().requires_grad_()
        adjacency, _ = normalised(scores)
        adjacency.square().sum().backward()
        gradients.append(scores.grad)
    assert torch.isfinite(gradients[1]).all() and gradients[1].abs().max() > 0.01
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


def test_aggregate_sums_the_neighbours_of_equation_5():
    random = np.random.default_rng(1)
    nodes, adjacency = random.normal(size=(4, 3)), random.uniform(size=(4, 4))
    expected = np.zeros((4, 6))
    for i in range(4):
        expected[i, :3] = nodes[i]
        for j in range(4):
            if j != i:
                expected[i, 3:] += adjacency[i, j] * nodes[j]
    found = graph.aggregate(torch.tensor(nodes), torch.tensor(adjacency))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_two_channel_aggregate_matches_loops():
    random = np.random.default_rng(2)
    nodes, edges = random.normal(size=(4, 3)), random.uniform(size=(2, 4, 4))
    expected = np.zeros((4, 9))
    for i in range(4):
        expected[i, :3] = nodes[i]
        for channel in range(2):
            mass = sum(edges[channel, i, j] for j in range(4) if j != i)
            for j in range(4):
                if j != i:
                    expected[i, 3 * (channel + 1) : 3 * (channel + 2)] += edges[channel, i, j] / mass * nodes[j]
    found = graph.aggregate_two_channels(torch.tensor(nodes), torch.tensor(edges))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def egnn_update_by_loops(similarity: np.ndarray, edges: np.ndarray) -> np.ndarray:
    size = len(similarity)
    updated = np.zeros((2, size, size))
    for channel, value in enumerate((similarity, 1 - similarity)):
        for i in range(size):
            others = [j for j in range(size) if j != i]
            mass = sum(edges[channel, i, j] for j in others)
            total = sum(value[i, j] * edges[channel, i, j] for j in others)
            for j in others:
                updated[channel, i, j] = mass * value[i, j] * edges[channel, i, j] / total
            updated[channel, i, i] = 1.0 if channel == 0 else 0.0
    updated += 1e-6
    return updated / updated.sum(0)


def test_two_channel_update_matches_loops():
    random = np.random.default_rng(3)
    similarity, similar = random.uniform(0.05, 0.95, (5, 5)), random.uniform(0.05, 0.95, (5, 5))
    edges = np.stack([similar, 1 - similar])
    found = graph.update_two_channels(torch.tensor(similarity), torch.tensor(edges))
    np.testing.assert_allclose(found, egnn_update_by_loops(similarity, edges), atol=1e-7)


def test_update_keeps_channels_complementary_and_the_diagonal_fixed():
    edges = graph.update_two_channels(torch.rand(2, 8, 8), random_edges(0))
    torch.testing.assert_close(edges.sum(1), torch.ones(2, 8, 8), atol=2e-7, rtol=0)
    diagonal = edges.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(diagonal[:, 0], torch.ones(2, 8), atol=2e-6, rtol=0)


def test_rows_of_the_neighbourhoods_sum_to_one():
    rows = graph.row_normalised(random_edges(1))
    torch.testing.assert_close(rows.sum(-1), torch.ones(2, 2, 8))
    assert rows.diagonal(dim1=-2, dim2=-1).abs().max() == 0


def test_the_diagonal_of_the_old_edges_does_not_matter():
    edges, similarity, nodes = random_edges(2), torch.rand(2, 8, 8), torch.randn(2, 8, 3)
    other = edges + 5 * torch.eye(8)
    assert torch.equal(graph.update_two_channels(similarity, edges), graph.update_two_channels(similarity, other))
    assert torch.equal(graph.aggregate_two_channels(nodes, edges), graph.aggregate_two_channels(nodes, other))
    assert torch.equal(*(graph.symmetric_normalisation(given.log())[0] for given in (edges, other)))


def test_an_undecided_similarity_leaves_the_edges_as_they_were():
    edges = graph.two_channels(graph.initial_edges(graph.all_labels(LABELS, N_QUERY)))
    updated = graph.update_two_channels(torch.full((2, 8, 8), 0.5), edges)
    off_diagonal = ~torch.eye(8, dtype=torch.bool)
    torch.testing.assert_close(updated[..., off_diagonal], edges[..., off_diagonal], atol=2e-6, rtol=0)


def test_class_vote_counts_labelled_supports_only():
    edges = torch.rand(2, N_QUERY, 5, generator=torch.Generator().manual_seed(4))
    found = graph.class_vote(edges, LABELS, 3)
    for task in range(2):
        for q in range(N_QUERY):
            votes = [sum(edges[task, q, j].item() for j in range(5) if LABELS[task, j] == c) for c in range(3)]
            np.testing.assert_allclose(found[task, q], np.array(votes) / sum(votes), atol=1e-5)


@pytest.mark.parametrize(("query_pairs", "positives", "negatives"), [(True, 55, 220), (False, 50, 200)])
def test_scored_edges_of_five_way_five_shot(query_pairs, positives, negatives):
    labels = torch.cat([torch.arange(5).repeat(5), torch.arange(5)])
    target, mask = graph.query_edges(labels, 5, query_rows_only=False, query_pairs=query_pairs)
    assert ((mask * target).sum().item(), (mask * (1 - target)).sum().item()) == (positives, negatives)


def test_the_paper_scores_query_rows_and_labelled_support_columns():
    labels = torch.tensor([0, 1, -1, 1, 0])
    target, mask = graph.query_edges(labels, 2, query_rows_only=True, query_pairs=True)
    expected = torch.zeros(5, 5)
    expected[3:, :2] = 1
    assert torch.equal(mask, expected)
    assert target[3, 1] == 1 and target[3, 0] == 0


@pytest.mark.parametrize("balanced", [True, False])
def test_edge_loss_matches_loops(balanced):
    random = np.random.default_rng(5)
    probability = random.uniform(0.1, 0.9, (4, 4))
    target, mask = (random.uniform(size=(2, 4, 4)) > 0.4).astype(float)
    positive, negative = [], []
    for i in range(4):
        for j in range(4):
            if mask[i, j]:
                p = probability[i, j]
                (positive if target[i, j] else negative).append(-np.log(p if target[i, j] else 1 - p))
    expected = np.mean(positive) + np.mean(negative) if balanced else np.mean(positive + negative)
    found = graph.edge_loss(*(torch.tensor(x) for x in (probability, target, mask)), balanced)
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_layer_weights():
    assert graph.layer_weights(3, weighted=False) == [1, 1, 1]
    assert graph.layer_weights(3, weighted=True) == pytest.approx([0.5 / 3, 0.5 / 3, 1 / 3])


def test_pointwise_net_is_a_stack_of_1x1_convolutions_in_training_mode():
    net = graph.PointwiseNet([4, 6, 3], outputs=2)
    stack = nn.Sequential(
        nn.Conv2d(4, 6, 1, bias=False), nn.BatchNorm2d(6), nn.LeakyReLU(),
        nn.Conv2d(6, 3, 1, bias=False), nn.BatchNorm2d(3), nn.LeakyReLU(),
        nn.Conv2d(3, 2, 1),
    )  # fmt: skip
    with torch.no_grad():
        for conv, linear in zip((stack[0], stack[3], stack[6]), (*net.linears, net.out), strict=True):
            conv.weight.copy_(linear.weight[:, :, None, None])
        stack[6].bias.copy_(net.out.bias)
    edges = torch.randn(3, 5, 5, 4)
    torch.testing.assert_close(net(edges), stack(edges.movedim(-1, 1)).movedim(1, -1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(net.norms[1].running_var, stack[4].running_var)


def test_dropout_takes_whole_channels_of_one_graph():
    net = graph.PointwiseNet([4, 64], dropout=0.5).train()
    zero = net(torch.randn(6, 7, 7, 4)).flatten(1, 2) == 0
    assert torch.equal(zero.all(1), zero.any(1))
    assert 0.2 < zero.float().mean() < 0.8
    assert not torch.equal(zero[0].all(0), zero[1].all(0))


def test_one_graph_per_query_keeps_each_query_with_its_own_supports():
    support, query = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 6, 4)
    labels = torch.randint(0, 9, (2, 3, 5))
    supports, copies, queries = graph.one_graph_per_query(support, labels, query)
    for t in range(2):
        for b in range(3):
            for q in range(6):
                assert torch.equal(supports[t, b * 6 + q], support[t, b])
                assert torch.equal(copies[t, b * 6 + q], labels[t, b])
                assert torch.equal(queries[t, b * 6 + q, 0], query[t, b, q])


def test_merged_query_graphs_hold_every_row_and_column():
    edges = torch.rand(2 * 3, 5, 5)  # 2 tasks, 3 queries, 4 supports
    merged = graph.merge_query_graphs(edges, 3)
    for b in range(2):
        for q in range(3):
            assert torch.equal(merged[b, 4 + q, :4], edges[b * 3 + q, 4, :4])
            assert torch.equal(merged[b, :4, 4 + q], edges[b * 3 + q, :4, 4])
        assert torch.equal(merged[b, 4:, 4:], torch.eye(3))
        torch.testing.assert_close(merged[b, :4, :4], edges[b * 3 : b * 3 + 3, :4, :4].mean(0))
