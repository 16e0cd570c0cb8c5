"""The gates' kernels for a GPU, run by Triton's interpreter on the CPU, against the plain loop over time."""

import pytest
import torch

pytest.importorskip("triton", reason="the interpreter of the kernels is Triton's")
if torch.cuda.is_available():
    pytest.skip("the interpreter runs where there is no GPU", allow_module_level=True)

from engram.nn.history import LibraryGate, PaperGate
from engram.nn.kernels import cuda


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
