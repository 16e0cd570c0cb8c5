"""A method in double precision: the same function, its rounding gone, and nothing left changed behind it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from engram.methods import METHODS
from engram.probes.double import double_precision, doubled, doubled_method
from engram.types import Episode


def test_whoever_asks_for_float32_gets_float64_and_only_inside() -> None:
    single = torch.ones(2, dtype=torch.float32)
    with double_precision():
        made = [single.float(), single.to(torch.float32), torch.zeros(2, dtype=torch.float32), torch.zeros(2)]
        assert {value.dtype for value in made} == {torch.float64}
        assert torch.zeros(2, dtype=torch.int64).float().dtype == torch.float64
    assert torch.zeros(2).dtype == torch.ones(2, dtype=torch.int64).float().dtype == torch.float32


def test_a_failure_inside_leaves_the_default_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError), double_precision():
        raise ZeroDivisionError
    assert torch.get_default_dtype() is torch.float32


def test_features_are_doubled_and_bytes_are_not() -> None:
    labels = torch.tensor([[0, 1]])
    features = doubled(Episode(torch.randn(1, 2, 3), labels, torch.randn(1, 1, 3), 2))
    assert features.support.dtype == features.query.dtype == torch.float64 and features.support_labels is labels
    images = Episode(torch.zeros(1, 2, 3, dtype=torch.uint8), labels, torch.zeros(1, 1, 3, dtype=torch.uint8), 2)
    assert doubled(images) is images


def test_a_copy_answers_the_same_far_more_exactly() -> None:
    class Layer(nn.Linear):
        out_shape = (4,)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.float())

    torch.manual_seed(0)
    method = METHODS["proto_net"](Layer(6, 4), METHODS["proto_net"].Config())
    episode = Episode(torch.randn(2, 4, 6), torch.tensor([[0, 1, 0, 1]] * 2), torch.randn(2, 3, 6), 2)
    with torch.no_grad(), double_precision():
        precise = doubled_method(method).predict(doubled(episode)).log_probs
    with torch.no_grad():
        ordinary = method.predict(episode).log_probs
    assert precise.dtype == torch.float64 and ordinary.dtype == torch.float32
    assert 0 < (precise - ordinary).abs().max() < 1e-4
    assert {p.dtype for p in method.parameters()} == {torch.float32}
