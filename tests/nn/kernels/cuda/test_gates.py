"""The gates' kernels for a GPU, run by Triton's interpreter on the CPU, against PyTorch's own cell for one step
and the plain loop over time."""

import pytest
import torch
from interpreted import assert_equal

pytest.importorskip("triton", reason="the interpreter of the kernels is Triton's")
if torch.cuda.is_available():
    pytest.skip("the interpreter runs where there is no GPU", allow_module_level=True)

from engram.nn.history import LibraryGate, PaperGate
from engram.nn.kernels import cuda, pytorch
from engram.nn.kernels.cuda import gates

ROWS, WIDTH = 60, 5
"""more numbers than one block of a program"""


@pytest.mark.parametrize("gate", [PaperGate, LibraryGate])
def test_gates_walk_through_time_as_the_plain_loop_does(gate: type, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    nodes, state, gradient = torch.randn(4, 2, 3, 5), torch.randn(2, 3, 5), torch.randn(4, 2, 3, 5)
    module, answers = gate(5), []
    for fast in (True, False):
        monkeypatch.setattr(cuda, "trains", lambda values, fast=fast: fast)
        inputs = nodes.clone().requires_grad_(), state.clone().requires_grad_()
        states = module(*inputs)
        answers.append([states, *torch.autograd.grad(states, [*inputs, *module.parameters()], gradient)])
    torch.testing.assert_close(*answers, atol=1e-5, rtol=1e-5)


def test_a_step_of_the_librarys_gate_is_its_cell() -> None:
    values, state, out = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH), torch.empty(ROWS, WIDTH)
    cell = torch.nn.GRUCell(WIDTH, WIDTH)
    with torch.no_grad():
        given = values @ cell.weight_ih.T + cell.bias_ih
        past = state @ cell.weight_hh.T + cell.bias_hh
        gates._launch(gates.library_forward, given, past, state, out, like=state)
        assert_equal([out], [cell(values, state)])


@pytest.mark.parametrize("large", [1.0, 8.0])
def test_a_step_of_the_papers_gate_is_its_equation_also_where_it_saturates(large: float) -> None:
    given, state = large * torch.randn(1, ROWS, 3 * WIDTH), torch.randn(ROWS, WIDTH)
    weights = torch.randn(2 * WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
    past, product, out = state @ weights[0].T, torch.empty(ROWS, WIDTH), torch.empty(ROWS, WIDTH)
    gates._launch(gates.paper_reset, given[0], past, state, product, like=state)
    inner = product @ weights[1].T
    gates._launch(gates.paper_forward, given[0], past, inner, state, out, like=state)
    assert_equal([out[None]], [pytorch.paper_gate(given, state, *weights)])
