"""Launches of the kernels: how work is cut into tiles, and what has no second derivative."""

import pytest
import torch
from interpreted import assert_equal

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
