"""Whole encoders compiled by PyTorch: on a GPU, while they are trained, where a backbone says that it gains by it.

Normalisation, activations, sums and pooling between two convolutions become one pass over memory each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from engram.nn.kernels import serving

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
