"""The same by PyTorch's own modules and operations: evaluation, other precisions, `torch.func`, any device.

Whole encoders are compiled: on a GPU, while they are trained, where a backbone says that it gains by it. Normalisation,
activations, sums and pooling between two convolutions then become one pass over memory each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.nn.kernels import serving


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


NAME = "inductor"
_lacking: list[str] = []
"""why compiling failed in this process: it is not tried again"""


def may_compile(images: Tensor, backbone: nn.Module) -> bool:
    """``backbone.compiles`` says that nothing but PyTorch's modules stands in it, and large ones."""
    wanted = images.is_cuda and backbone.training and getattr(backbone, "compiles", False)
    return wanted and serving.in_training() and serving.may_serve() and serving.available(next(iter(_lacking), ""))


@cache
def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, compiled on first use for its modules and shapes; as it is where that fails."""
    fast = torch.compile(function)

    def run(*given: Any) -> Tensor:
        try:
            result: Tensor = fast(*given)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = " ".join(str(error).split())[:200]
            _lacking.append(f"the encoder could not be compiled ({reason}): steps take longer")
            return function(*given)
        serving.served(NAME)
        return result

    return run
