"""Launches of the kernels: how work is cut into tiles, and what has no second derivative."""

import pytest
import torch
from interpreted import assert_equal
from torch import nn

from engram.nn.kernels import cuda
from engram.nn.kernels.cuda.launches import _summed, _tiles


def test_second_derivatives_are_refused_not_wrong() -> None:
    values = torch.randn(3, 8, requires_grad=True)
    result = cuda.group_product(values, torch.randn(2, 4), torch.zeros(2)).square().sum()
    (first,) = torch.autograd.grad(result, values, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("work", [1, 32, 33, 1000])
def test_tiles_cover_the_work_with_no_program_idle(work: int) -> None:
    programs, tiles = _tiles(work, 32, 4)
    assert programs <= 4 and (programs - 1) * tiles * 32 < work <= programs * tiles * 32


def test_partial_sums_of_all_programs_are_added() -> None:
    partial = torch.randn(37, 2, 5)
    assert_equal([_summed(partial)], [partial.sum(0)])


def test_shapes_are_looked_at_before_a_kernel_is_launched() -> None:
    with pytest.raises(ValueError, match=r"values is \(5, 7\) .* where \(5, 8\)"):
        cuda.group_product(torch.randn(5, 7), torch.randn(2, 4), torch.randn(2))
    with pytest.raises(ValueError, match=r"bias is \(3,\)"):
        cuda.group_product(torch.randn(5, 8), torch.randn(2, 4), torch.randn(3))
    with pytest.raises(ValueError, match=r"BatchNorm has 8 channels and was given \(6, 16\)"):
        cuda.norm_activate(torch.randn(6, 16), nn.BatchNorm1d(8), 0.2, None, None, 3)
    with pytest.raises(ValueError, match="7 rows do not make graphs of 3"):
        cuda.norm_activate(torch.randn(7, 16), nn.BatchNorm1d(16), 0.2, None, None, 3)
    with pytest.raises(ValueError, match=r"given is \(3, 5, 24\) .* where \(3, 4, 24\)"):
        cuda.paper_gate(torch.randn(3, 5, 24), torch.randn(4, 8), torch.randn(16, 8), torch.randn(8, 8))
    with pytest.raises(ValueError, match=r"given is \(3, 5, 8\) .* where \(3, 4, 8\)"):
        cuda.library_gate(torch.randn(3, 5, 8), torch.randn(4, 8), *[torch.randn(24, 8)] * 2, *[torch.randn(24)] * 2)
