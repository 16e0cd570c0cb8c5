"""What PyTorch's own operations compute is the equation of the layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from engram.nn import kernels


def test_dropout_takes_whole_channels_of_a_graph() -> None:
    torch.manual_seed(0)
    norm, values = nn.BatchNorm1d(8), torch.randn(6, 8)
    torch.manual_seed(1)
    found = kernels.pointwise(values, norm, 1.0, 0.5, 2).unflatten(0, (2, 3))
    kept = found.abs().sum(1) > 0
    assert kept.any() and not kept.all()
    expected = 2 * F.batch_norm(values, None, None, training=True).unflatten(0, (2, 3)) * kept[:, None]
    torch.testing.assert_close(found, expected)


def test_each_output_has_its_own_group_of_channels() -> None:
    values, weight, bias = torch.randn(3, 8), torch.randn(2, 4), torch.randn(2)
    expected = torch.stack([values[:, :4] @ weight[0], values[:, 4:] @ weight[1]], 1) + bias
    torch.testing.assert_close(kernels.group_product(values, weight, bias), expected)
