"""TPN: the graph in loops, propagation against its series, and the identities that both must keep."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from engram.errors import EngramError
from engram.methods.tpn import Tpn, TpnConfig
from engram.nn.backbones import Flatten, build_backbone
from engram.types import Answers, Episode, TrainBatch

FEATURES, WAYS, SHOTS, QUERIES = 6, 3, 2, 5
NODES = WAYS * SHOTS + QUERIES


def build(**changes) -> Tpn:
    torch.manual_seed(0)
    method = Tpn(Flatten((FEATURES,)), TpnConfig(**{"n_neighbours": 4, **changes})).double()
    with torch.no_grad():  # scales that differ from node to node, one of them negative
        method.scale_net.layers[-1].weight.normal_()
    return method.eval()


def episode() -> Episode:
    labels = torch.stack([torch.randperm(WAYS * SHOTS) % WAYS for _ in range(2)])
    nodes = torch.randn(2, NODES, FEATURES, dtype=torch.float64)
    return Episode(nodes[:, : WAYS * SHOTS], labels, nodes[:, WAYS * SHOTS :], WAYS)


def nodes_of(given: Episode) -> torch.Tensor:
    return torch.cat([given.support, given.query], 1)


def ties_in_loops(method: Tpn, nodes: torch.Tensor) -> np.ndarray:
    """W of one task (n, d), neighbour by neighbour."""
    scales = method.scale_net(nodes.view(len(nodes), *method.map_shape))[:, 0] + 2.0**-23
    scaled = (nodes / scales[:, None]).numpy()
    size = len(scaled)
    weights = np.array([[np.exp(-np.mean((a - b) ** 2) / 2) for b in scaled] for a in scaled])
    nearest = [sorted(range(size), key=lambda j: -weights[i, j])[: method.config.n_neighbours] for i in range(size)]
    return np.array(
        [[weights[i, j] if j in nearest[i] or i in nearest[j] else 0.0 for j in range(size)] for i in range(size)]
    )


def normalised(weights: np.ndarray) -> np.ndarray:
    return weights / np.sqrt(np.outer(weights.sum(1), weights.sum(1)))


def test_parameter_counts() -> None:
    method = Tpn(build_backbone("conv64_map", (3, 84, 84), {}), TpnConfig())
    assert sum(p.numel() for p in method.scale_net.parameters()) == 37_684
    assert sum(p.numel() for p in method.parameters()) == 150_772


@torch.no_grad()
def test_answers_match_loops_and_the_series() -> None:
    """F = sum over t of (alpha A)^t Y, added up until nothing is left."""
    method, given = build(alpha=0.9), episode()
    found = method.predict(given).log_probs
    for b in range(2):
        graph = normalised(ties_in_loops(method, nodes_of(given)[b]))
        assert (graph == 0).any()
        np.testing.assert_allclose(method.graph(nodes_of(given))[b], graph, atol=1e-10)
        labels = np.zeros((NODES, WAYS))
        labels[np.arange(WAYS * SHOTS), given.support_labels[b]] = 1
        spread, term = labels.copy(), labels
        for _ in range(400):
            term = 0.9 * graph @ term
            spread += term
        rows = np.exp(spread[WAYS * SHOTS :])
        np.testing.assert_allclose(found[b].exp(), rows / rows.sum(1, keepdims=True), atol=1e-8)


@torch.no_grad()
def test_the_graph_is_symmetric_with_radius_1() -> None:
    method, given = build(), episode()
    graph = method.graph(nodes_of(given))
    torch.testing.assert_close(graph, graph.transpose(1, 2))
    torch.testing.assert_close(torch.linalg.eigvalsh(graph)[:, -1], torch.ones(2, dtype=torch.float64))
    for b in range(2):
        root = np.sqrt(ties_in_loops(method, nodes_of(given)[b]).sum(1))
        np.testing.assert_allclose(graph[b].numpy() @ root, root, atol=1e-10)


@torch.no_grad()
def test_labels_spread_without_loss() -> None:
    """sum_i sqrt(D_i) F_ic = sum_i sqrt(D_i) Y_ic / (1 - alpha), and nothing is negative."""
    method, given = build(), episode()
    spread = method._spread(given).numpy()
    assert (spread >= -1e-9).all()
    for b in range(2):
        root = np.sqrt(ties_in_loops(method, nodes_of(given)[b]).sum(1))
        labels = np.eye(WAYS)[given.support_labels[b]]
        np.testing.assert_allclose(root @ spread[b], root[: WAYS * SHOTS] @ labels / 0.01, rtol=1e-8)


@torch.no_grad()
def test_without_propagation_labels_stay_where_they_are() -> None:
    method, given = build(alpha=0.0), episode()
    spread = method._spread(given)
    assert torch.equal(spread[:, : WAYS * SHOTS], torch.eye(WAYS, dtype=torch.float64)[given.support_labels])
    assert not spread[:, WAYS * SHOTS :].any()


@torch.no_grad()
def test_all_neighbours_are_the_dense_graph() -> None:
    given = episode()
    most, more = (build(n_neighbours=k).graph(nodes_of(given)) for k in (NODES, 10 * NODES))
    assert torch.equal(most, more) and (most > 0).all()


@torch.no_grad()
def test_order_of_nodes_and_names_of_classes_do_not_matter() -> None:
    method, given = build(), episode()
    supports, queries, names = torch.randperm(WAYS * SHOTS), torch.randperm(QUERIES), torch.tensor([2, 0, 1])
    labels = names[given.support_labels[:, supports]]
    changed = replace(given, support=given.support[:, supports], support_labels=labels, query=given.query[:, queries])
    plain, other = method.predict(given).log_probs, method.predict(changed).log_probs
    torch.testing.assert_close(other[..., names], plain[:, queries])


@torch.no_grad()
def test_a_query_less_changes_the_others() -> None:
    method, given = build(), episode()
    fewer = replace(given, query=given.query[:, :-1])
    gap = (method.predict(given).log_probs[:, :-1] - method.predict(fewer).log_probs).abs().max()
    assert gap > 1e-4 and method.card.transductive


def test_the_loss_is_over_labelled_supports_and_queries() -> None:
    method, given = build(), episode()
    labels = given.support_labels.clone()
    labels[:, 0] = -1
    given = replace(given, support_labels=labels)
    answers = Answers(torch.randint(0, WAYS, (2, QUERIES)), torch.zeros(2, WAYS).long())
    with torch.no_grad():
        log_probs = method._spread(given).log_softmax(-1)
    targets = torch.cat([labels, answers.query_labels], 1)
    expected = [-log_probs[b, i, targets[b, i]] for b in range(2) for i in range(NODES) if targets[b, i] >= 0]
    terms = method.loss(TrainBatch((given,), (answers,)))
    assert terms.total.item() == pytest.approx(torch.stack(expected).mean().item())
    assert terms.terms["isolated"] == 0
    far = replace(given, query=given.query + 1e4)
    assert method.loss(TrainBatch((far,), (answers,))).terms["isolated"] == 1
    terms.total.backward()
    assert all(p.grad is not None for p in method.parameters())


@pytest.mark.parametrize(
    ("changes", "told"), [({"alpha": 1.0}, "alpha = 1.0"), ({"n_neighbours": 0}, "n_neighbours = 0")]
)
def test_settings_that_cannot_be_are_told(changes: dict[str, float], told: str) -> None:
    with pytest.raises(EngramError, match=told):
        build(**changes)


def test_a_node_with_a_scale_near_zero_leaves_all_answers_finite():
    """Its scaled squares are huge, and in float32 their difference with themselves is not 0."""
    given, method = episode(), build().float()
    given = replace(given, support=given.support.float(), query=given.query.float())
    method.scale_net.forward = lambda nodes: torch.where(torch.arange(len(nodes))[:, None] == 3, 1e-5, 1.0)
    ties = method.graph(nodes_of(given))
    assert bool(torch.isfinite(ties).all())
    assert bool(torch.isfinite(method.classify(given).log_probs).all())
    degree = ties.diagonal(dim1=1, dim2=2)
    assert float(degree.detach()[0, 3]) > 0  # tied to itself, W_ii = 1
