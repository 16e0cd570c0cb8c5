"""On a real GPU: shapes, types and devices that do not fit are told before a kernel sees them, and harm nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from engram.nn import kernels
from engram.nn.kernels import cuda

pytestmark = pytest.mark.skipif(bool(cuda.missing()), reason=f"kernels of the GPU need one: {cuda.missing()}")


def here(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", requires_grad=True)


WRONG: dict[str, Callable[[], object]] = {
    "a row too narrow": lambda: cuda.group_product(here(5, 7), here(2, 4), here(2)),
    "a bias too long": lambda: cuda.group_product(here(5, 8), here(2, 4), here(3)),
    "weights on the CPU": lambda: cuda.group_product(here(5, 8), torch.randn(2, 4), torch.randn(2)),
    "another type": lambda: cuda.group_product(here(5, 8).double(), here(2, 4), here(2)),
    "half a graph": lambda: cuda.norm_activate(here(7, 16), nn.BatchNorm1d(16).cuda(), 0.2, None, None, 3),
    "a smaller norm": lambda: cuda.norm_activate(here(6, 16), nn.BatchNorm1d(8).cuda(), 0.2, None, None, 3),
    "nothing kept": lambda: cuda.norm_activate(here(6, 16), nn.BatchNorm1d(16).cuda(), 0.2, here(3, 16), None, 3),
    "another state": lambda: cuda.paper_gate(here(3, 5, 24), here(4, 8), here(16, 8), here(8, 8)),
    "a state of another gate": lambda: cuda.library_gate(
        here(3, 5, 8), here(4, 8), *[here(24, 8)] * 2, *[here(24)] * 2
    ),
    "a block of other channels": lambda: cuda.conv_block(
        here(2, 3, 8, 8), [nn.Conv2d(3, 16, 3).cuda(), nn.BatchNorm2d(8).cuda(), nn.MaxPool2d(2), nn.ReLU()]
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_shape_that_does_not_fit_is_told_and_the_gpu_goes_on(what: str) -> None:
    with pytest.raises(ValueError):
        WRONG[what]()
    torch.cuda.synchronize()  # a kernel that read elsewhere would be told here
    assert float(cuda.group_product(here(5, 8), here(2, 4), here(2)).sum().isfinite())


@pytest.mark.parametrize("rows", [1, 3, 7, 33, 1000])
def test_every_shape_that_fits_is_as_with_pytorch(rows: int) -> None:
    values, norm = here(3 * rows, 16), nn.BatchNorm1d(16).cuda()
    with kernels.plain():
        expected = kernels.pointwise(values, norm, 0.2, 0.0, rows)
    found = cuda.norm_activate(values, norm, 0.2, None, None, 3)
    assert torch.allclose(found, expected, atol=1e-4)
