"""What a node remembers of earlier tasks: gated recurrent units over time, one state per slot.

A gate maps nodes (T, B, V, d) and a state (B, V, d) to the hidden states (T, B, V, d); the last of them is the next
state. Products with the nodes run for all T at once where the cell allows, which leaves the state's to the loop.
"""

from __future__ import annotations

from torch import Tensor, nn

from engram.nn import kernels


class PaperGate(nn.Module):
    """Equation 6, with z as the share of the NEW state and the reset inside the product with U_h.

        z = sigmoid(W_z v + U_z h' + b_z)          r = sigmoid(W_r v + U_r h' + b_r)
        h~ = tanh(W_h v + U_h (r * h') + b_h)      h = h~ * z + h' * (1 - z)

    Shapes: nodes (T, B, V, d), state h' (B, V, d) -> (T, B, V, d)
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inputs = nn.Linear(width, 3 * width)
        self.gates = nn.Linear(width, 2 * width, bias=False)
        self.candidate = nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.gates.weight)
        nn.init.orthogonal_(self.candidate.weight)

    def forward(self, nodes: Tensor, state: Tensor) -> Tensor:
        return kernels.paper_gate(self.inputs(nodes), state, self.gates.weight, self.candidate.weight)


class LibraryGate(nn.GRUCell):
    """The library's GRU cell: z is the share of the OLD state, and the reset comes after the product with U_h.

        h~ = tanh(W_h v + b_h + r * (U_h h' + c_h))      h = h~ * (1 - z) + h' * z

    Shapes: nodes (T, B, V, d), state h' (B, V, d) -> (T, B, V, d)
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, width)
        for weight in (self.weight_ih, self.weight_hh):
            nn.init.orthogonal_(weight)
        for bias in (self.bias_ih, self.bias_hh):
            nn.init.normal_(bias)

    def forward(self, nodes: Tensor, state: Tensor) -> Tensor:  # type: ignore[override]
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return kernels.library_gate(nodes, state, *weights)
