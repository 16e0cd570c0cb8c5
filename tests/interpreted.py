"""GPU kernels against ordinary modules; what imports this is skipped where Triton's interpreter cannot run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="the interpreter of the kernels is Triton's")
if torch.cuda.is_available():
    pytest.skip("the interpreter runs where there is no GPU", allow_module_level=True)


def norm(channels: int) -> nn.BatchNorm2d:
    made = nn.BatchNorm2d(channels)
    nn.init.normal_(made.weight)  # also negative: then the smallest value of a window becomes the largest
    nn.init.normal_(made.bias)
    return made


def with_other_norms(net: nn.Module) -> nn.Module:
    """Weights of BatchNorm that are not 1, as a kernel might forget them."""
    for part in net.modules():
        if isinstance(part, nn.BatchNorm1d):
            nn.init.uniform_(part.weight)
    return net


def outcome(result: Tensor, gradient: Tensor, *modules: nn.Module, inputs: tuple[Tensor, ...] = ()) -> list[Tensor]:
    result.backward(gradient)
    values = [p.grad for m in modules for p in m.parameters()] + [b.float() for m in modules for b in m.buffers()]
    return [result.detach(), *(i.grad for i in inputs), *values]


def assert_equal(fast: list[Tensor], plain: list[Tensor]) -> None:
    for mine, expected in zip(fast, plain, strict=True):
        assert float((mine - expected).norm()) <= 1e-5 * float(expected.norm()) + 1e-5
