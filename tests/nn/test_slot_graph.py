"""The paper's graph network against plain loops; EGNN's form is held to the public model's answers elsewhere."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from engram.nn.slot_graph import ContinualGraph

INPUTS, WIDTH, LAYERS, STEPS, TASKS, QUERIES = 6, 8, 2, 2, 2, 4
LABELS = torch.tensor([[0, 1, 2, 2, 1, -1], [1, 0, 2, 0, -1, 2]])


@pytest.fixture
def network() -> ContinualGraph:
    """Evaluation mode, statistics that have seen something, and no variance, so the expectation is at the mean."""
    torch.manual_seed(0)
    graph = ContinualGraph(INPUTS, LAYERS, WIDTH, "paper", "paper", "paper", LAYERS, "node", "task", dropout=0.3)
    with torch.no_grad():
        for parameter in graph.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=2 * parameter.shape[1] ** -0.5)
        for _ in range(20):
            graph(*inputs())
        for layer in graph.layers:
            layer.posterior.log_variance.out.weight.zero_()
            layer.posterior.log_variance.out.bias.fill_(-60)
    return graph.eval()


def inputs() -> tuple[torch.Tensor, torch.Tensor, int]:
    return torch.randn(STEPS, TASKS, 6 + QUERIES, INPUTS), LABELS.expand(STEPS, -1, -1), 3


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def run_net(net: nn.Module, x: np.ndarray, last_activation: bool = True) -> np.ndarray:
    for i, (linear, norm) in enumerate(zip(net.linears, net.norms, strict=True)):
        mean, var, scale, shift = (
            v.detach().double().numpy() for v in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
        )
        x = (linear.weight.detach().double().numpy() @ x - mean) / np.sqrt(var + 1e-5) * scale + shift
        if last_activation or i < len(net.linears) - 1:
            x = np.where(x > 0, x, 0.01 * x)
    if net.out is not None:
        x = net.out.weight.detach().double().numpy() @ x + net.out.bias.detach().double().numpy()
    return x


def normalise(adjacency: np.ndarray) -> np.ndarray:
    bare = adjacency * (1 - np.eye(len(adjacency)))
    return bare / np.sqrt(np.outer(bare.sum(1), bare.sum(1)))


def initial(labels: list[int]) -> np.ndarray:
    adjacency = np.full((len(labels), len(labels)), 0.5)
    for i, j in product(range(len(labels)), repeat=2):
        if labels[i] >= 0 and labels[j] >= 0:
            adjacency[i, j] = float(labels[i] == labels[j])
    return normalise(adjacency)


def edges_by_loops(network: ContinualGraph, nodes: np.ndarray, labels: list[int], past: list) -> list[np.ndarray]:
    """Edge probabilities sigmoid(W V A + b) per layer, of one task at one step; `past` goes from step to step."""
    size, adjacency, answer = len(nodes), initial(labels), []
    for k, layer in enumerate(network.layers):
        gathered = [sum(adjacency[i, j] * nodes[j] for j in range(size) if j != i) for i in range(size)]
        pairs = [np.concatenate([nodes[i], gathered[i]]) for i in range(size)]
        nodes = np.stack([run_net(layer.node_net, pair, last_activation=False) for pair in pairs])
        past[k] = network.gates[k](torch.tensor(nodes).float()[None, None], past[k])[0].detach()
        hidden = past[k][0].double().numpy()
        raw = np.zeros((size, size))
        for i, j in product(range(size), repeat=2):
            raw[i, j] = sigmoid(run_net(layer.edge_net, np.abs(hidden[i] - hidden[j]))[0])
        adjacency = normalise(raw)
        posterior = layer.posterior(past[k], None, None)
        answer.append(sigmoid(posterior.weight_mean.item() * size * adjacency + posterior.bias_mean.item()))
    return answer


@torch.no_grad()
def test_the_paper_preset_is_its_equations(network):
    nodes, labels, n_way = inputs()
    found = network(nodes, labels, n_way)
    off_diagonal = ~np.eye(6 + QUERIES, dtype=bool)
    for task in range(TASKS):
        past = [torch.zeros(1, 6 + QUERIES, WIDTH)] * LAYERS
        known = [*LABELS[task].tolist(), *([-1] * QUERIES)]
        for step in range(STEPS):
            expected = edges_by_loops(network, nodes[step, task].double().numpy(), known, past)
            for k in range(LAYERS):
                edges = found.edges[k, step, task].numpy()
                np.testing.assert_allclose(edges[off_diagonal], expected[k][off_diagonal], atol=2e-5)
                assert edges[off_diagonal].std() > 0.01  # far from the same everywhere
                torch.testing.assert_close(found.hidden[step, task, k], past[k][0], atol=2e-5, rtol=0)
            votes = np.array([[expected[-1][q, [j for j in range(6) if known[j] == c]].sum() for c in range(n_way)]
                              for q in range(6, 6 + QUERIES)])  # fmt: skip
            probabilities = found.class_samples[0, step, task]
            np.testing.assert_allclose(probabilities, votes / votes.sum(1, keepdims=True), atol=1e-4)


@torch.no_grad()
def test_scores_may_drift_where_nothing_holds_them(network):
    """Equation 7 cancels what all edges of a layer share, so training may lower every score without end."""
    given, answers = inputs(), []
    for lower in (20, 40, 400):
        for layer in network.layers:
            layer.edge_net.out.bias.sub_(lower)
        answers.append(network(*given))
    for far in answers[1:]:
        torch.testing.assert_close(far.edges, answers[0].edges, atol=2e-5, rtol=0)
        torch.testing.assert_close(far.class_samples, answers[0].class_samples, atol=2e-5, rtol=0)
    assert answers[0].edges[-1].std() > 0.01


@torch.no_grad()
def test_training_tells_the_smallest_degree_of_each_layer(network):
    given = inputs()
    assert network(*given).log10_smallest_degrees is None
    near = network.train()(*given).log10_smallest_degrees
    assert near.shape == (LAYERS,) and (near < np.log10(6 + QUERIES)).all() and (near > -20).all()
    for layer in network.layers:
        layer.edge_net.out.bias.sub_(1000)
    far = network(*given).log10_smallest_degrees
    assert torch.isfinite(far).all() and (far < -400).all()


@torch.no_grad()
def test_the_past_can_be_handed_over(network):
    nodes, labels, n_way = inputs()
    whole = network(nodes, labels, n_way)
    second = network(nodes[1:], labels[1:], n_way, whole.hidden[0])
    torch.testing.assert_close(second.edges[:, 0], whole.edges[:, 1], atol=1e-6, rtol=0)
    fresh = network(nodes[1:], labels[1:], n_way)
    assert (fresh.edges[:, 0] - whole.edges[:, 1]).abs().max() > 1e-3
