"""One step of training: each objective's gradient, clipping and momentum are its own, whole and in micro-batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from toy_run import assert_same_end, go, make_stores

from engram.models.checkpoint import load
from engram.recipes.schema import DataSettings, Recipe, TestSettings, TrainSettings
from engram.training.step import Update
from engram.training.trainer import Trainer
from engram.types import Answers, Episode, LossTerms, Method, Objective, TrainBatch

SETTINGS = TrainSettings(
    1, 4, optimiser="sgd", learning_rate=0.1, momentum=0.9, clip="per-tensor", clip_value=1.0, weight_decay=0.01
)
CPU = torch.device("cpu")
TADAM = Recipe(
    "tadam/toy",
    "tadam",
    DataSettings("toy", n_way=3, n_query=2, class_batch=8),
    TrainSettings(
        iterations=6,
        sequences=2,
        optimiser="sgd",
        learning_rate=0.1,
        weight_decay=0.0005,
        clip="per-tensor",
        clip_value=1.0,
        validate_every=3,
        validation_sequences=4,
    ),
    TestSettings(n_way=3),
    backbone="resnet12_film",
    backbone_settings={"widths": (3, 4, 4, 6)},
    method_settings={"n_base_classes": 6},
)


class Small(Method):
    """One weight of two numbers; a small loss along the first that may be left to chance, a large along the second."""

    def __init__(self, chance: float | None = None) -> None:
        super().__init__(nn.Identity(), None)
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.chance = chance
        self.seen: list[Tensor] = []

    def objectives(self) -> tuple[Objective, ...]:
        chance = self.chance
        return Objective(self.small, None if chance is None else lambda progress: chance), Objective(self.large)

    def small(self, batch: TrainBatch) -> LossTerms:
        mean = batch.tasks()[0].mean()
        return LossTerms(0.5 * mean * self.weight[0], {"small": mean})

    def large(self, batch: TrainBatch) -> LossTerms:
        self.seen.append(self.weight.detach().clone())
        return LossTerms(47 * batch.tasks()[0].mean() * self.weight[1], {"large": torch.ones(())})


def batch(tasks: int = 4) -> TrainBatch:
    labels = torch.zeros(tasks, 1).long()
    support = torch.linspace(0.5, 1.5, tasks)[:, None]
    return TrainBatch((Episode(support, labels, support, 1),), (Answers(labels, labels),), progress=0.0)


def written(steps: int) -> Tensor:
    """Both updates by hand: v <- 0.9 v + g / max(1, |g|) + 0.01 w, w <- w - 0.1 v, the small one first."""
    weight, velocities = torch.tensor([1.0, 2.0]), [torch.zeros(2), torch.zeros(2)]
    for _ in range(steps):
        for k, gradient in enumerate((torch.tensor([0.5, 0.0]), torch.tensor([0.0, 1.0]))):
            velocities[k] = 0.9 * velocities[k] + gradient + 0.01 * weight
            weight = weight - 0.1 * velocities[k]
    return weight


@pytest.mark.parametrize("micro_batch", [0, 1, 3])
def test_each_objective_is_clipped_alone_with_a_momentum_of_its_own(micro_batch: int) -> None:
    method = Small()
    update = Update(method, SETTINGS, CPU, micro_batch=micro_batch)
    names, values = update(batch())
    assert names == ("loss", "small", "large")
    torch.testing.assert_close(values, torch.tensor([0.5 + 47 * 1.998, 1.0, 1.0]))
    update(batch())
    torch.testing.assert_close(method.weight.detach(), written(2))


def test_an_objective_sees_the_weights_that_the_one_before_it_left() -> None:
    method = Small()
    Update(method, SETTINGS, CPU)(batch())
    torch.testing.assert_close(method.seen[0], torch.tensor([1 - 0.1 * 0.51, 2 - 0.1 * 0.02]))


def test_one_coin_is_tossed_for_all_micro_batches_and_none_for_an_objective_of_every_step() -> None:
    states = []
    for micro_batch in (0, 1):
        torch.manual_seed(0)
        Update(Small(chance=0.5), SETTINGS, CPU, micro_batch=micro_batch)(batch())
        states.append(torch.get_rng_state())
    torch.manual_seed(0)
    untouched = torch.get_rng_state()
    Update(Small(), SETTINGS, CPU)(batch())
    assert torch.equal(torch.get_rng_state(), untouched)
    assert torch.equal(*states) and not torch.equal(states[0], untouched)


def test_what_chance_leaves_out_does_not_move_the_weights_and_the_rest_does() -> None:
    method = Small(chance=0.0)
    update = Update(method, replace(SETTINGS, weight_decay=0.0), CPU)
    for _ in range(3):
        update(batch())
    assert method.weight[0].item() == 1.0 and method.weight[1].item() < 2.0


def test_a_run_of_tadam_makes_both_updates_as_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against both updates by hand: each tensor clipped, v <- 0.9 v + g + decay w, w <- w - lr v."""
    monkeypatch.setattr("engram.methods.tadam.ANNEALING", 1.0)  # base classes in every step
    ours, written = (Trainer(TADAM, make_stores(), tmp_path, torch.device("cpu")) for _ in range(2))
    for trainer in (ours, written):
        trainer.begin(resume=False)
    method = written.method
    velocities: tuple[dict[str, Tensor], ...] = ({}, {})
    for _ in range(2):
        given = written.source.draw(0.0)
        losses = (lambda: base_nll(method, given)), (lambda: Method.loss(method, given).total)  # noqa: B023
        for loss, velocity in zip(losses, velocities, strict=True):
            write_update(method, loss(), velocity)
        ours.step(0.0)
    norms = [p.grad.norm() for p in method.backbone.parameters() if p.grad is not None]
    assert max(norms) > 3  # clipping is felt
    for (name, expected), found in zip(method.named_parameters(), ours.method.parameters(), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4, msg=name)


def base_nll(method: Any, given: TrainBatch) -> Tensor:
    assert given.class_batch
    images, ids = given.class_batch
    return F.cross_entropy(method.base_classifier(method.backbone(images)), ids)


def write_update(method: Method, loss: Tensor, velocity: dict[str, Tensor]) -> None:
    method.zero_grad()
    loss.backward()
    with torch.no_grad():
        for name, p in method.named_parameters():
            if p.grad is None:
                continue
            decay = {"gamma0": 0.01, "beta0": 0.01}.get(name.rpartition(".")[2], 0.0005 * (p.ndim > 1))
            decay *= not name.startswith("base_classifier")
            velocity[name] = 0.9 * velocity.get(name, 0) + p.grad / p.grad.norm().clamp(min=1) + decay * p
            p.sub_(0.1 * velocity[name])


def test_a_run_of_tadam_resumes_both_optimisers_exactly(tmp_path: Path) -> None:
    go(tmp_path / "straight", TADAM)
    go(tmp_path / "parts", TADAM, max_iterations=3)
    torch.rand(7)
    go(tmp_path / "parts", TADAM, resume=True)
    assert_same_end(tmp_path / "straight", tmp_path / "parts")
    assert len(load(tmp_path / "parts", "last").state.optimiser["others"]) == 1
