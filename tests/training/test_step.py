"""One step of training: each objective's gradient, clipping and momentum are its own, whole and in micro-batches."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from several import RECIPES
from torch import Tensor, nn
from toy_run import assert_same_end, go, make_stores

from engram import processes
from engram.data.episodes import placed
from engram.models.checkpoint import load
from engram.processes import Message, Share
from engram.recipes.schema import DataSettings, Recipe, TestSettings, TrainSettings
from engram.training.step import Losses, Update, _Graph
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


def in_pieces(trainer: Trainer) -> Message[Losses]:
    source = trainer.source
    lists = placed(source.store, source.draw_lists(), source.device)
    return trainer.update.pieces(source.assemble(lists, 0.0))


def test_pieces_with_messages_added_up_between_them_are_the_step_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes played one after the other, as two CUDA graphs with a message between them are replayed."""
    recipe, stores, trainers = RECIPES["maml"], make_stores(), []  # its norms know no other process
    for share in (Share(), Share(0, 2), Share(1, 2)):
        monkeypatch.setattr(processes, "_mine", share)
        torch.manual_seed(0)
        trainers.append(Trainer(recipe, stores, tmp_path, CPU))
        trainers[-1].begin(resume=False)
    one, *two = trainers
    for _ in range(2):
        monkeypatch.setattr(processes, "_mine", Share())
        names, values = one.update(one.source.assemble(placed(stores["train"], one.source.draw_lists(), CPU), 0.0))
        monkeypatch.setattr(processes, "_mine", Share(0, 2))
        pieces = [in_pieces(trainer) for trainer in two]
        messages = [next(piece) for piece in pieces]
        total = messages[0] + messages[1]
        ends = []
        for piece, message in zip(pieces, messages, strict=True):
            message.copy_(total)
            with pytest.raises(StopIteration) as end:
                next(piece)
            ends.append(end.value.value)
        assert ends[0][0] == names and torch.equal(ends[0][1], ends[1][1])
        torch.testing.assert_close(ends[0][1], values)
    for key, value in one.method.state_dict().items():
        torch.testing.assert_close(two[0].method.state_dict()[key], value)
        assert torch.equal(two[0].method.state_dict()[key], two[1].method.state_dict()[key])


class Tape:
    """In the place of a CUDA graph: what is captured is done at once."""

    def pool(self) -> tuple[int, int]:
        return (0, 1)

    def register_generator_state(self, generator: torch.Generator) -> None: ...


@pytest.mark.parametrize(("recipe", "messages"), [(RECIPES["proto_net"], 1), (TADAM, 2)])
def test_a_captured_step_is_cut_at_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe, messages: int
) -> None:
    pools: list[Any] = []

    def capture(graph: Tape, pool: Any) -> Any:
        pools.append(pool)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Tape)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    local = replace(recipe, train=replace(recipe.train, batch_norm_sync="local"))
    trainer = Trainer(local, make_stores(), tmp_path, CPU)
    trainer.begin(resume=False)
    monkeypatch.setattr(processes, "_mine", Share(0, 2))
    for cut, expected in ((True, messages), (False, 0)):
        monkeypatch.setattr(processes, "cut_graphs", lambda cut=cut: cut)
        monkeypatch.setattr(processes, "add_up", lambda message: None)
        lists = trainer.source.draw_lists()
        pools.clear()
        if recipe is TADAM and cut:  # its coin is one process's word to the others
            with pytest.raises(RuntimeError, match="tell each other something in the midst of it"):
                _Graph(trainer.source, trainer.update, lists)
            continue
        if recipe is TADAM:
            monkeypatch.setattr(processes, "copy_from_first", lambda tensors: None)
        graph = _Graph(trainer.source, trainer.update, lists)
        assert [message is not None for _, message in graph.parts] == [True] * expected + [False]
        assert pools == [None] + [(0, 1)] * expected and graph.names[0] == "loss"
