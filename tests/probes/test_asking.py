"""The same question in two ways: orders, names, and a comparison that holds its level."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from engram.methods import METHODS
from engram.probes.asking import (
    compare,
    cyclic_order,
    double_precision,
    doubled,
    noise_like,
    relabelled,
    roll_history,
    with_support_order,
)
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
        precise = deepcopy(method).double().predict(doubled(episode)).log_probs
    with torch.no_grad():
        ordinary = method.predict(episode).log_probs
    assert precise.dtype == torch.float64 and ordinary.dtype == torch.float32
    assert 0 < (precise - ordinary).abs().max() < 1e-4
    assert {p.dtype for p in method.parameters()} == {torch.float32}


EPISODE = Episode(
    torch.arange(8.0).view(2, 4, 1), torch.tensor([[0, 1, 2, -1], [2, 1, 0, 0]]), torch.zeros(2, 1, 1), 3,
    torch.tensor([[10, 11, 12], [20, 21, 22]]),
)  # fmt: skip


def test_new_labels_take_their_names_along() -> None:
    new = relabelled(EPISODE, torch.tensor([[1, 2, 0], [0, 2, 1]]))
    assert new.support_labels.tolist() == [[1, 2, 0, -1], [1, 2, 0, 0]]
    assert new.class_names.tolist() == [[12, 10, 11], [20, 22, 21]]  # type: ignore[union-attr]


def test_supports_keep_their_labels_in_any_order() -> None:
    new = with_support_order(EPISODE, torch.tensor([[3, 2, 1, 0], [1, 0, 3, 2]]))
    assert new.support[..., 0].tolist() == [[3, 2, 1, 0], [5, 4, 7, 6]]
    assert new.support_labels.tolist() == [[-1, 2, 1, 0], [1, 2, 0, 0]]


def test_a_foreign_past_is_that_of_the_neighbour() -> None:
    per_task, per_layer = torch.arange(2), torch.arange(4)
    assert [part.tolist() for part in roll_history((per_task, per_layer), 2) or ()] == [[1, 0], [2, 3, 0, 1]]
    assert roll_history((torch.zeros(3),), 2) is None and roll_history((torch.tensor(1.0),), 2) is None


def test_noise_has_the_type_and_spread_of_what_it_stands_for() -> None:
    generator = torch.Generator().manual_seed(0)
    pixels = noise_like(torch.zeros(50, 50, dtype=torch.uint8), generator, (0, 1))
    features = noise_like(torch.zeros(50, 50), generator, (3.0, 2.0))
    assert pixels.dtype == torch.uint8 and pixels.min() < 5 and pixels.max() > 250
    assert abs(features.mean() - 3) < 0.2 and abs(features.std() - 2) < 0.2


def test_the_permutation_test_holds_its_level_and_sees_a_shift() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.rand(2, 12, 50, generator=generator, dtype=torch.float64)
    effect, bound = compare(first, second, 1e-5)
    assert effect < bound
    effect, bound = compare(first, second + 0.8 * (torch.arange(50) == 7), 1e-5)
    assert effect > bound


def test_an_order_leaves_no_slot_in_place() -> None:
    order = cyclic_order(50, 2, torch.Generator().manual_seed(0))
    assert (order == torch.tensor([1, 0])).all()
    assert (cyclic_order(50, 7, torch.Generator().manual_seed(0)) != torch.arange(7)).all()
