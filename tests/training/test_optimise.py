"""Schedules, clipping and optimiser state as plain tensors."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from engram.errors import EngramError
from engram.recipes.schema import TrainSettings
from engram.training.optimise import (
    begin_momentum,
    build_optimiser,
    clip_gradients,
    clip_groups,
    learning_rate_factor,
    pack_optimiser,
    pack_optimisers,
    set_learning_rate,
    step_by_chance,
    unpack_optimiser,
    unpack_optimisers,
)
from engram.types import Method

CPU = torch.device("cpu")
SETTINGS = TrainSettings(iterations=100, sequences=1, learning_rate=0.1)


class TwoGroups(Method):
    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 3), None)
        self.head = nn.Linear(3, 2)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": list(self.backbone.parameters())}, {"params": list(self.head.parameters()), "lr": 0.01}]


def test_schedules_are_pure_functions_of_the_iteration() -> None:
    assert learning_rate_factor(SETTINGS, 99) == 1.0
    step = replace(SETTINGS, schedule="step", schedule_step=30, schedule_factor=0.5)
    assert [learning_rate_factor(step, i) for i in (0, 29, 30, 59, 60, 99)] == [1, 1, 0.5, 0.5, 0.25, 0.125]
    drops = replace(SETTINGS, schedule="milestones", milestones=(30, 40), schedule_factor=0.5)
    assert [learning_rate_factor(drops, i) for i in (0, 29, 30, 39, 40, 99)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    uneven = replace(drops, milestone_factors=(0.06, 0.012))
    assert [learning_rate_factor(uneven, i) for i in (0, 29, 30, 39, 40, 99)] == [1, 1, 0.06, 0.06, 0.012, 0.012]
    linear = replace(SETTINGS, schedule="linear")
    assert [learning_rate_factor(linear, i) for i in (0, 25, 100)] == pytest.approx([1, 0.75, 0])
    assert learning_rate_factor(linear, 25, progress=0.5) == pytest.approx(0.5)
    cosine = replace(SETTINGS, schedule="cosine")
    assert [learning_rate_factor(cosine, i) for i in (0, 50, 100)] == pytest.approx([1, 0.5, 0])
    assert learning_rate_factor(cosine, 25) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert learning_rate_factor(cosine, 25, progress=0.5) == pytest.approx(0.5)
    assert learning_rate_factor(cosine, 25, progress=1.7) == pytest.approx(0)


def test_nesterov_momentum_takes_the_gradient_where_momentum_leads() -> None:
    """p <- p - lr (g + m v), v <- m v + g: written out for two steps of a constant gradient."""
    settings = replace(SETTINGS, optimiser="sgd", learning_rate=0.1, momentum=0.9, nesterov=True)
    method = TwoGroups()
    optimiser = build_optimiser(method, settings, CPU)
    weight = method.backbone.weight
    expected, velocity = weight.detach().clone(), 0.0
    for _ in range(2):
        weight.grad = torch.ones_like(weight)
        optimiser.step()
        velocity = 0.9 * velocity + 1
        expected = expected - 0.1 * (1 + 0.9 * velocity)
    torch.testing.assert_close(weight.detach(), expected)


def test_groups_keep_their_own_rate_under_a_schedule() -> None:
    optimiser = build_optimiser(TwoGroups(), SETTINGS, CPU)
    set_learning_rate(optimiser, 0.5)
    set_learning_rate(optimiser, 0.25)
    assert [group["lr"] for group in optimiser.param_groups] == [0.025, 0.0025]


def test_clipping_per_group_takes_a_norm_over_each_group() -> None:
    for kind, expected in (("per-group", [0.5, 0.5]), ("global", None)):
        method = TwoGroups()
        optimiser = build_optimiser(method, SETTINGS, CPU)
        for parameter in method.parameters():
            parameter.grad = torch.ones_like(parameter)
        clip_groups(optimiser, kind, 0.5)
        norms = [
            torch.stack([p.grad.norm() for p in g["params"] if p.grad is not None]).norm()
            for g in optimiser.param_groups
        ]
        if expected is None:
            assert float(torch.stack(norms).norm()) == pytest.approx(0.5, rel=1e-4)
        else:
            assert [float(n) for n in norms] == pytest.approx(expected, rel=1e-4)


def test_betas_of_the_recipe_reach_adam() -> None:
    chosen = build_optimiser(TwoGroups(), replace(SETTINGS, betas=(0.5, 0.9)), CPU)
    usual = build_optimiser(TwoGroups(), SETTINGS, CPU)
    assert {group["betas"] for group in chosen.param_groups} == {(0.5, 0.9)}
    assert {group["betas"] for group in usual.param_groups} == {(0.9, 0.999)}


def _gradients() -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(3))]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 4.0]), torch.tensor([0.5])
    return parameters  # the third has none: frozen or unused


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("none", 1.0, [[3.0, 4.0], [0.5]]),
        ("global", math.sqrt(25.25) / 2, [[1.5, 2.0], [0.25]]),
        ("global", 100.0, [[3.0, 4.0], [0.5]]),
        ("per-tensor", 1.0, [[0.6, 0.8], [0.5]]),
        ("value", 1.0, [[1.0, 1.0], [0.5]]),
    ],
)
def test_clipping_kinds(kind: str, value: float, expected: list[list[float]]) -> None:
    parameters = _gradients()
    clip_gradients(parameters, kind, value)
    for parameter, gradient in zip(parameters, expected, strict=False):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, torch.tensor(gradient), rtol=1e-5, atol=1e-5)
    assert parameters[2].grad is None
    clip_gradients([parameters[2]], kind, value)


def test_what_cannot_be_optimised_is_refused() -> None:
    with pytest.raises(EngramError, match="clip = 'global' needs clip_value above 0, not 0"):
        build_optimiser(TwoGroups(), replace(SETTINGS, clip="global"), CPU)
    frozen = TwoGroups()
    frozen.parameter_groups = lambda: [{"params": []}]  # type: ignore[method-assign]
    with pytest.raises(EngramError, match="TwoGroups has no parameters to train"):
        build_optimiser(frozen, SETTINGS, CPU)


@pytest.mark.parametrize("kind", ["adam", "sgd"])
@pytest.mark.parametrize("steps", [0, 2])
def test_packed_state_continues_exactly(kind: Any, steps: int) -> None:
    def steps_of(method: TwoGroups, optimiser: torch.optim.Optimizer, count: int) -> None:
        for _ in range(count):
            optimiser.zero_grad()
            method.head(method.backbone(torch.ones(1, 3))).square().sum().backward()
            optimiser.step()

    settings = replace(SETTINGS, optimiser=kind, weight_decay=0.01)
    straight = TwoGroups()
    first = build_optimiser(straight, settings, CPU)
    steps_of(straight, first, steps)
    tensors, structure = pack_optimiser(first)
    resumed = TwoGroups()
    resumed.load_state_dict(straight.state_dict())
    second = build_optimiser(resumed, settings, CPU)
    unpack_optimiser(second, {k: v.clone() for k, v in tensors.items()}, json.loads(json.dumps(structure)))
    steps_of(straight, first, 2)
    steps_of(resumed, second, 2)
    for a, b in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_several_optimisers_are_packed_together_and_one_as_it_always_was() -> None:
    settings = replace(SETTINGS, optimiser="sgd")
    method = TwoGroups()
    first, second = (build_optimiser(method, settings, CPU) for _ in range(2))
    for optimiser, gradient in ((first, 1.0), (second, 2.0)):
        for parameter in method.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
        optimiser.step()
    tensors, structure = pack_optimisers([first, second])
    again = [build_optimiser(method, settings, CPU) for _ in range(2)]
    unpack_optimisers(again, tensors, json.loads(json.dumps(structure)))
    for optimiser, gradient in zip(again, (1.0, 2.0), strict=True):
        assert all((optimiser.state[p]["momentum_buffer"] == gradient).all() for p in method.parameters())
    assert pack_optimisers([first])[1] == pack_optimiser(first)[1]
    assert pack_optimisers([first])[0].keys() == pack_optimiser(first)[0].keys()
    with pytest.raises(
        EngramError, match=r"the state of 1 optimiser\(s\) but this method makes 2 update\(s\) in a step"
    ):
        unpack_optimisers(again, *pack_optimisers([first]))


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_a_step_that_chance_leaves_out_leaves_everything_as_it_was(kind: Any) -> None:
    """Made or left out, in any order from the first step on: as an optimiser to which only the made ones were shown."""
    torch.manual_seed(0)
    settings = replace(SETTINGS, optimiser=kind, weight_decay=0.1)
    tossed, shown = TwoGroups(), TwoGroups()
    shown.load_state_dict(tossed.state_dict())
    by_chance, plain = build_optimiser(tossed, settings, CPU), build_optimiser(shown, settings, CPU)
    for step, made in enumerate((0, 0, 1, 0, 1, 1, 0)):
        for method in (tossed, shown):
            for parameter in method.parameters():
                parameter.grad = torch.full_like(parameter, step + 1.0)
        step_by_chance(by_chance, torch.tensor(float(made)))
        if made:
            plain.step()
        for a, b in zip(tossed.parameters(), shown.parameters(), strict=True):
            assert torch.equal(a, b), step


def test_what_was_held_so_far_begins_as_a_first_step_does() -> None:
    """The head learns alone, then both, as by the library's optimiser that looks at each tensor by itself."""
    torch.manual_seed(0)
    fast, slow = TwoGroups(), TwoGroups()
    slow.load_state_dict(fast.state_dict())
    fused = build_optimiser(fast, replace(SETTINGS, optimiser="sgd", weight_decay=0.1), CPU)
    settings = {key: fused.defaults[key] for key in ("lr", "momentum", "weight_decay", "nesterov")}
    plain = torch.optim.SGD(slow.parameter_groups(), **settings, foreach=False, fused=False)
    for step in range(5):
        for method in (fast, slow):
            for name, parameter in method.named_parameters():
                held = name.startswith("backbone") and step < 2
                parameter.grad = None if held else torch.full_like(parameter, step + 1.0)
        begin_momentum(fused)
        fused.step()
        plain.step()
        for a, b in zip(fast.parameters(), slow.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-7), step


def test_a_coin_falls_as_often_as_its_chance_says() -> None:
    torch.manual_seed(0)
    method = TwoGroups()
    optimiser = build_optimiser(method, replace(SETTINGS, optimiser="sgd", momentum=0.0), CPU)
    made = 0
    for _ in range(1000):
        before = method.head.bias.detach().clone()
        method.head.bias.grad = torch.ones(2)
        step_by_chance(optimiser, 0.3)
        made += not torch.equal(before, method.head.bias)
    assert 240 < made < 360
