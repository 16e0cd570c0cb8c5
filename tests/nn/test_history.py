"""The paper's gate against plain loops; the library's against the library's own sequence module."""

import numpy as np
import pytest
import torch
from torch import nn

from engram.nn.history import LibraryGate, PaperGate

T, B, V, D = 3, 2, 4, 5


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(T, B, V, D, generator=generator), torch.randn(B, V, D, generator=generator)


def test_paper_gate_follows_equation_6():
    gate = PaperGate(D)
    nodes, state = inputs()
    weight = {name: value.detach().numpy() for name, value in gate.named_parameters()}
    w_z, w_r, w_h = np.split(weight["inputs.weight"], 3)
    b_z, b_r, b_h = np.split(weight["inputs.bias"], 3)
    u_z, u_r = np.split(weight["gates.weight"], 2)
    u_h = weight["candidate.weight"]
    expected, past = np.zeros((T, B, V, D)), state.numpy().copy()
    for t in range(T):
        for b in range(B):
            for i in range(V):
                v, h = nodes[t, b, i].numpy(), past[b, i]
                z = sigmoid(w_z @ v + u_z @ h + b_z)
                r = sigmoid(w_r @ v + u_r @ h + b_r)
                new = np.tanh(w_h @ v + u_h @ (r * h) + b_h)
                expected[t, b, i] = past[b, i] = new * z + h * (1 - z)
    np.testing.assert_allclose(gate(nodes, state).detach(), expected, atol=1e-6)


def test_library_gate_is_the_library_recurrence():
    gate, whole = LibraryGate(D), nn.GRU(D, D)
    whole.load_state_dict({f"{name}_l0": value for name, value in gate.state_dict().items()})
    nodes, state = inputs()
    expected, _ = whole(nodes.flatten(1, 2), state.flatten(0, 1)[None])
    torch.testing.assert_close(gate(nodes, state), expected.view(T, B, V, D))


def test_the_update_gate_has_opposite_senses():
    nodes, state = inputs()
    paper, library = PaperGate(D), LibraryGate(D)
    with torch.no_grad():
        paper.inputs.bias[:D] = 50.0  # z = 1: the paper forgets the past state ...
        paper.candidate.weight.zero_()
        library.bias_ih[D : 2 * D] = 50.0  # ... and the library keeps it
    kept = library(nodes, state)
    torch.testing.assert_close(kept, state.expand_as(kept))
    forgot = paper(nodes, state)
    torch.testing.assert_close(forgot, paper(nodes, 0 * state))
    assert not torch.allclose(forgot[0], state, atol=0.1)


@pytest.mark.parametrize("kind", [PaperGate, LibraryGate])
def test_a_sequence_in_pieces_is_the_whole_sequence(kind):
    gate = kind(D)
    nodes, state = inputs()
    whole = gate(nodes, state)
    first = gate(nodes[:1], state)
    rest = gate(nodes[1:], first[-1])
    torch.testing.assert_close(torch.cat([first, rest]), whole)
    changed = gate(torch.cat([nodes[:2], -nodes[2:]]), state)
    assert torch.equal(changed[:2], whole[:2]) and not torch.equal(changed[2], whole[2])


def test_parameter_counts():
    assert sum(p.numel() for p in PaperGate(96).parameters()) == 3 * (2 * 96 * 96 + 96)
    assert sum(p.numel() for p in LibraryGate(96).parameters()) == 3 * (2 * 96 * 96 + 2 * 96)
