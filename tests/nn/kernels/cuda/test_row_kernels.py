"""Kernels of rows in Triton's interpreter on the CPU against ordinary modules: values and gradients."""

import copy

import pytest
import torch
from interpreted import assert_equal, outcome, with_other_norms

from engram.nn import graph
from engram.nn.bayes import EdgePosterior
from engram.nn.kernels import cuda
from engram.nn.pairs import on_pairs


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("last_activation", [True, False])
def test_pointwise_nets_agree(dropout: float, last_activation: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x, gradient, answers = torch.randn(3, 4, 4, 5), torch.randn(3, 4, 4, 1), []
    made = graph.PointwiseNet([5, 6, 7], outputs=1, dropout=dropout, last_activation=last_activation)
    with_other_norms(made)
    for fast in (True, False):
        monkeypatch.setattr(cuda, "trains", lambda values, fast=fast: fast)
        torch.manual_seed(1)  # the same channels are dropped
        net, inputs = copy.deepcopy(made), x.clone().requires_grad_()
        answers.append(outcome(net(inputs), gradient, net, inputs=(inputs,)))
    assert_equal(*answers)


def test_groups_of_the_edge_posterior_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, made, answers = torch.randn(3, 4, 6), with_other_norms(EdgePosterior(6, 0.2)), []
    for fast in (True, False):
        monkeypatch.setattr(cuda, "trains", lambda values, fast=fast: fast)
        torch.manual_seed(1)
        net, inputs = copy.deepcopy(made), nodes.clone().requires_grad_()
        pairs = graph.differences(inputs)
        fields = torch.stack(net(None, pairs, pairs[..., 0])[1:])
        answers.append(outcome(fields, torch.ones_like(fields), net, inputs=(inputs,)))
    assert_equal(*answers)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_pair_that_counts_twice_trains_as_two(dropout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, made, answers = torch.randn(3, 5, 6), with_other_norms(graph.edge_net(6, dropout)), []
    gradient = torch.randn(3, 5, 5, 1)
    for fast in (True, False):
        monkeypatch.setattr(cuda, "trains", lambda values, fast=fast: fast)
        torch.manual_seed(1)
        net, inputs = copy.deepcopy(made), nodes.clone().requires_grad_()
        answers.append(outcome(on_pairs(net, graph.differences(inputs)), gradient, net, inputs=(inputs,)))
    assert_equal(*answers)
