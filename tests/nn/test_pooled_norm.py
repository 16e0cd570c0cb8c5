"""Norm and pooling in one: values and both derivatives are those of the two layers, wherever they are asked for."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap

from engram.nn import task_norm
from engram.nn.backbones import build_backbone
from engram.nn.pooled_norm import pooled_norm
from engram.nn.task_norm import TaskNorm, for_tasks, no_vmap, with_statistics

SIZES = [(5, 4, False), (5, 6, True), (2, 3, False)]


def layers(x: Tensor, ceil: bool = False) -> Tensor:
    return F.max_pool2d(F.batch_norm(x, None, None, training=True, eps=1e-3), 2, ceil_mode=ceil)


def maps(height: int, width: int) -> Tensor:
    torch.manual_seed(height)
    x = torch.randn(4, 3, height, width, dtype=torch.float64) * torch.tensor([1.0, 5.0, 0.1])[:, None, None] + 2
    return x.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("height", "width", "ceil"), SIZES)
def test_values_and_both_derivatives_are_those_of_the_layers(height: int, width: int, ceil: bool) -> None:
    x = maps(height, width).requires_grad_()
    y, mean, variance = pooled_norm(x, 1e-3, ceil)
    torch.testing.assert_close(y, layers(x, ceil))
    torch.testing.assert_close(mean, x.mean((0, 2, 3)))
    torch.testing.assert_close(variance, x.var((0, 2, 3), correction=0))
    assert not mean.requires_grad and not variance.requires_grad
    assert torch.autograd.gradcheck(lambda values: pooled_norm(values, 1e-3, ceil)[0], x)
    assert torch.autograd.gradgradcheck(lambda values: pooled_norm(values, 1e-3, ceil)[0], x)


def test_second_derivatives_of_a_function_of_it_agree_under_torch_func() -> None:
    x = maps(5, 6)
    weights = torch.randn(4, 3, 2, 3, dtype=torch.float64)

    def twice(norm: object) -> Tensor:
        inner = grad(lambda values: (norm(values).sin() * weights).sum())  # type: ignore[operator]
        return grad(lambda values: inner(values).square().sum())(x)

    torch.testing.assert_close(twice(lambda values: pooled_norm(values, 1e-3, False)[0]), twice(layers))


@pytest.mark.parametrize("apart", [False, True], ids=["as under vmap", "no vmap"])
@pytest.mark.parametrize("given", [False, True])
def test_a_norm_with_its_pooling_inside_equals_the_two(apart: bool, given: bool) -> None:
    norm, inside = TaskNorm(3, gain=False).double(), TaskNorm(3, gain=False).double()
    nn.init.normal_(norm.bias)
    inside.load_state_dict(norm.state_dict())
    inside.pool = nn.MaxPool2d(2)
    x = maps(5, 6).requires_grad_()
    statistics = [(torch.randn(3).double(), torch.rand(3).double())] if given else None
    with no_vmap(apart):
        found, seen = with_statistics(inside, lambda: inside(x), statistics)
        expected, others = with_statistics(norm, lambda: norm(x), statistics)
    torch.testing.assert_close(found, F.max_pool2d(expected, 2))
    torch.testing.assert_close(seen, others)
    weights = torch.randn_like(found)
    first, second = (
        torch.autograd.grad((y * weights).sum(), [x, *layer.parameters()])
        for y, layer in ((found, inside), (F.max_pool2d(expected, 2), norm))
    )
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize(("name", "moved"), [("conv32", 4), ("conv32_same", 4), ("conv64_cova", 2), ("resnet12", 0)])
def test_poolings_that_follow_a_norm_go_into_it_and_names_stay(name: str, moved: int) -> None:
    plain = build_backbone(name, (3, 32, 32), {})
    names = [key for key, _ in plain.named_parameters()]
    with_gain, encoder = for_tasks(deepcopy(plain)), for_tasks(plain, gain=False)
    assert [key for key, _ in with_gain.named_parameters()] == names
    assert {key for key, _ in encoder.named_parameters()} <= set(names)
    assert not any(isinstance(part, TaskNorm) and part.pool is not None for part in with_gain.modules())
    assert sum(isinstance(part, TaskNorm) and part.pool is not None for part in encoder.modules()) == moved


def test_encoders_answer_alike_under_vmap_in_a_loop_and_without_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    encoder = for_tasks(build_backbone("conv32_same", (3, 18, 18), {}), gain=False).double()
    tasks = torch.randn(2, 4, 3, 18, 18, dtype=torch.float64)
    with torch.no_grad():
        together = vmap(encoder)(tasks)
        with no_vmap():
            torch.testing.assert_close(torch.stack([encoder(task) for task in tasks]), together)
            calls = []
            monkeypatch.setattr(task_norm, "pooled_norm", lambda *given: calls.append(given) or pooled_norm(*given))
            encoder(tasks[0])
    assert len(calls) == 4
