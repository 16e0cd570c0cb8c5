"""One step of each gate by its kernels, run by Triton's interpreter on the CPU, against PyTorch's own cell."""

import pytest
import torch
from interpreted import assert_equal

from engram.nn.kernels import pytorch
from engram.nn.kernels.cuda import gate_kernels, gates

ROWS, WIDTH = 60, 5
"""more numbers than one block of a program"""


def test_a_step_of_the_librarys_gate_is_its_cell() -> None:
    values, state, out = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH), torch.empty(ROWS, WIDTH)
    cell = torch.nn.GRUCell(WIDTH, WIDTH)
    with torch.no_grad():
        given = values @ cell.weight_ih.T + cell.bias_ih
        past = state @ cell.weight_hh.T + cell.bias_hh
        gates._launch(gate_kernels.library_forward, given, past, state, out, like=state)
        assert_equal([out], [cell(values, state)])


@pytest.mark.parametrize("large", [1.0, 8.0])
def test_a_step_of_the_papers_gate_is_its_equation_also_where_it_saturates(large: float) -> None:
    given, state = large * torch.randn(1, ROWS, 3 * WIDTH), torch.randn(ROWS, WIDTH)
    weights = torch.randn(2 * WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
    past, product, out = state @ weights[0].T, torch.empty(ROWS, WIDTH), torch.empty(ROWS, WIDTH)
    gates._launch(gate_kernels.paper_reset, given[0], past, state, product, like=state)
    inner = product @ weights[1].T
    gates._launch(gate_kernels.paper_forward, given[0], past, inner, state, out, like=state)
    assert_equal([out[None]], [pytorch.paper_gate(given, state, *weights)])
