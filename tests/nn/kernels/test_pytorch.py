"""What PyTorch's own operations compute is the equation of the layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from engram.nn import kernels
from engram.nn.kernels import pytorch


def test_dropout_takes_whole_channels_of_a_graph() -> None:
    torch.manual_seed(0)
    norm, values = nn.BatchNorm1d(8), torch.randn(6, 8)
    torch.manual_seed(1)
    found = kernels.pointwise(values, norm, 1.0, 0.5, 2).unflatten(0, (2, 3))
    kept = found.abs().sum(1) > 0
    assert kept.any() and not kept.all()
    expected = 2 * F.batch_norm(values, None, None, training=True).unflatten(0, (2, 3)) * kept[:, None]
    torch.testing.assert_close(found, expected)


def test_each_output_has_its_own_group_of_channels() -> None:
    values, weight, bias = torch.randn(3, 8), torch.randn(2, 4), torch.randn(2)
    expected = torch.stack([values[:, :4] @ weight[0], values[:, 4:] @ weight[1]], 1) + bias
    torch.testing.assert_close(kernels.group_product(values, weight, bias), expected)


def test_a_gate_that_is_shut_keeps_its_state_and_an_open_one_takes_the_new() -> None:
    new, state = torch.randn(1, 2, 4), torch.randn(2, 4)
    gates, candidate = torch.zeros(8, 4), torch.zeros(4, 4)
    for update, expected in ((-100.0, state), (100.0, torch.tanh(new[0]))):
        given = torch.cat([torch.full_like(new, update), torch.zeros_like(new), new], -1)
        torch.testing.assert_close(pytorch.paper_gate(given, state, gates, candidate)[0], expected)


def test_the_librarys_gate_walks_through_time_slot_by_slot() -> None:
    cell, nodes, state = nn.GRUCell(4, 4), torch.randn(2, 3, 5, 4), torch.randn(3, 5, 4)
    states = pytorch.library_gate(nodes, state, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    first = cell(nodes[0].flatten(0, 1), state.flatten(0, 1))
    torch.testing.assert_close(states[0].flatten(0, 1), first)
    torch.testing.assert_close(states[1].flatten(0, 1), cell(nodes[1].flatten(0, 1), first))
