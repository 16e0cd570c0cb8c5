"""The same by PyTorch's own modules and operations: evaluation, other precisions, `torch.func`, any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv_block(images: Tensor, layers: Sequence[nn.Module]) -> Tensor:
    for layer in layers:
        images = layer(images)
    return images


def norm_activate(values: Tensor, norm: nn.Module, slope: float, keep: Tensor | None) -> Tensor:
    normalised: Tensor = norm(values)
    x = normalised if slope == 1 else F.leaky_relu(normalised, slope, inplace=True)
    return x if keep is None else (x.unflatten(0, (len(keep), -1)) * keep[:, None]).flatten(0, 1)


def group_product(values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (values.unflatten(-1, weight.shape) * weight).sum(-1) + bias


def paper_gate(given: Tensor, state: Tensor, gates: Tensor, candidate: Tensor) -> Tensor:
    states: list[Tensor] = []
    for update, reset, new in zip(*given.chunk(3, -1), strict=True):
        update_past, reset_past = F.linear(state, gates).chunk(2, -1)
        z = torch.sigmoid(update + update_past)
        r = torch.sigmoid(reset + reset_past)
        state = state + z * (torch.tanh(new + F.linear(r * state, candidate)) - state)
        states.append(state)
    return torch.stack(states)


def library_gate(nodes: Tensor, state: Tensor, *weights: Tensor) -> Tensor:
    past, states = state.flatten(0, -2), []
    for step in nodes.flatten(1, -2):
        past = torch.gru_cell(step, past, *weights)
        states.append(past)
    return torch.stack(states).view(nodes.shape)
