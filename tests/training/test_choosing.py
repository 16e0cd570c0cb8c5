"""The moving average of the weights: the written-out sum, exact resumption, and nothing else changed by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_step import TADAM
from toy_run import RECIPE, STAGE_ONE, assert_same_end, changed, go, make_stores

from engram.data.episodes import frozen_tasks
from engram.errors import EngramError
from engram.evaluation.evaluate import Result
from engram.evaluation.metrics import Outcomes, summarise
from engram.models.checkpoint import load, load_method
from engram.protocol import Protocol
from engram.recipes.schema import Recipe
from engram.training.choosing import AsItCame, Average, ask_both
from engram.training.running import Running
from engram.training.trainer import Trainer

CPU = torch.device("cpu")
SINGLE = replace(RECIPE.data, stream_length=1)
METHODS = {
    "proto_net": RECIPE,
    "frozen": changed(train={"freeze_backbone": True}, method="egnn", method_settings={"n_layers": 1, "width": 4}),
    "stage_one": STAGE_ONE,
    "tadam": TADAM,
    "maml": replace(RECIPE, method="maml", method_settings={"n_way": 3, "inner_steps": 1}, data=SINGLE),
    "reptile": replace(RECIPE, method="reptile", method_settings={"n_way": 3, "inner_steps": 2}, data=SINGLE),
}


def averaged(recipe: Recipe = RECIPE, decay: float = 0.9, **train: Any) -> Recipe:
    return changed(recipe, {"average": decay, **train})


def begun(recipe: Recipe, folder: Path, **arguments: Any) -> Trainer:
    trainer = Trainer(recipe, make_stores(), folder, CPU, Running(**arguments))
    trainer.begin(resume=False)
    return trainer


def state(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.method.state_dict().items()}


@pytest.mark.parametrize("micro_batch", [0, 1])
@pytest.mark.parametrize("name", METHODS)
def test_it_is_the_sum_written_out_once_per_step_for_every_method(tmp_path: Path, name: str, micro_batch: int) -> None:
    decay = 0.3  # from the fourth step on below (1 + step) / (10 + step)
    trainer = begun(averaged(METHODS[name], decay), tmp_path, micro_batch=micro_batch)
    written = {k: v.double().numpy() for k, v in state(trainer).items()}
    for step in range(1, 6):
        trainer.step(0.0)
        d = min(decay, (1 + step) / (10 + step))
        for k, value in state(trainer).items():
            whole = not value.is_floating_point()
            written[k] = value.numpy() if whole else d * written[k] + (1 - d) * value.double().numpy()
    assert trainer.update.average
    found, last = trainer.update.average.state_dict(), state(trainer)
    assert found.keys() == last.keys()
    for k, value in found.items():
        np.testing.assert_allclose(value.numpy(), written[k], rtol=2e-5, atol=1e-6, err_msg=k)
    assert any(not torch.equal(found[k], last[k]) for k in last)
    if name == "frozen":
        start = begun(METHODS[name], tmp_path / "start").method.backbone.state_dict()
        assert all(torch.equal(found[f"backbone.{k}"], value) for k, value in start.items())  # not a bit of it


@pytest.mark.skipif(not torch.cuda.is_available(), reason="steps are captured on a GPU alone")
def test_it_follows_every_replay_of_a_captured_step(tmp_path: Path) -> None:
    trainer = Trainer(averaged(decay=0.3), make_stores(), tmp_path, torch.device("cuda"))
    trainer.begin(resume=False)
    written = {k: v.double() for k, v in state(trainer).items() if v.is_floating_point()}
    for step in range(1, 9):
        trainer.step(0.0)
        d = min(0.3, (1 + step) / (10 + step))
        written = {k: d * v + (1 - d) * trainer.method.state_dict()[k] for k, v in written.items()}
    assert trainer.stepper.graph is not None and trainer.update.average
    found = trainer.update.average.state_dict()
    for k, value in written.items():
        torch.testing.assert_close(found[k].double(), value, rtol=2e-5, atol=1e-6, msg=k)


@pytest.mark.parametrize("name", METHODS)
def test_training_is_the_same_with_and_without(tmp_path: Path, name: str) -> None:
    """The weights, their optimiser and all generators: an average only looks on, and none leaves no trace."""
    plain, watched = METHODS[name], averaged(METHODS[name])
    assert changed(plain, {"average": 0.0}).digest == plain.digest != watched.digest
    go(tmp_path / "plain", plain)
    go(tmp_path / "watched", watched)
    first, second = (load(tmp_path / run, "last") for run in ("plain", "watched"))
    assert not list(tmp_path.glob("plain/*/average.safetensors")) and first.state.chosen == "weights"
    for part in ("weights", "optimiser", "random"):
        left, right = (c.tensors(part, "last") for c in (first, second))  # type: ignore[arg-type]
        assert left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left), part
    assert first.state.curves["loss"] == second.state.curves["loss"]


@pytest.mark.parametrize("recipe", [RECIPE, TADAM], ids=["proto_net", "tadam"])
@pytest.mark.parametrize("stop", [2, 3])
def test_resume_equals_a_run_without_a_break(tmp_path: Path, recipe: Recipe, stop: int) -> None:
    recipe = averaged(recipe)
    straight = go(tmp_path / "straight", recipe)
    go(tmp_path / "parts", recipe, max_iterations=stop)
    torch.rand(7)
    resumed = go(tmp_path / "parts", recipe, resume=True)
    one, two = (load(tmp_path / run, "last") for run in ("straight", "parts"))
    for part in ("weights", "average"):
        left, right = (c.tensors(part, "last") for c in (one, two))  # type: ignore[arg-type]
        assert all(torch.equal(left[k], right[k]) for k in left), part
    if stop == recipe.train.validate_every:  # else the end of the first part is one validation more
        assert_same_end(tmp_path / "straight", tmp_path / "parts")
        assert resumed.curves == straight.curves and one.state.chosen == two.state.chosen
        best, again = straight.method.state_dict(), resumed.method.state_dict()
        assert all(torch.equal(best[k], again[k]) for k in best)


class Fixed:
    """A result with nothing but its accuracy."""

    def __init__(self, accuracy: float) -> None:
        self.metrics = {"accuracy": accuracy, "interval": 0.01}
        self.accuracy = accuracy


@pytest.mark.parametrize(
    ("answers", "chosen", "best"),
    [
        ([0.5, 0.6, 0.4, 0.3], ["average", "weights"], "average"),  # the first validation's average is the best
        ([0.5, 0.4, 0.5, 0.7], ["weights", "average"], "average"),  # that of the end
        ([0.5, 0.5, 0.3, 0.4], ["weights", "average"], "weights"),  # a tie stays with the weights
    ],
)
def test_validation_asks_both_and_takes_the_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[float], chosen: list[str], best: str
) -> None:
    asked = iter(answers)
    monkeypatch.setattr("engram.training.trainer.evaluate", lambda *_, **__: Fixed(next(asked)))
    outcome = go(tmp_path, averaged())
    better = [max(answers[:2]), max(answers[2:])]
    assert outcome.curves["validation_accuracy"] == better
    assert outcome.curves["validation_accuracy_last"] == answers[::2]
    assert outcome.curves["validation_accuracy_average"] == answers[1::2]
    assert outcome.training["chosen"] == best and outcome.training["best_accuracy"] == max(better)
    assert load(tmp_path, "last").state.chosen == chosen[-1] and load(tmp_path).state.chosen == best
    expected = load(tmp_path).tensors("average" if best == "average" else "weights", "last")
    for method in (outcome.method, load_method(load(tmp_path), CPU)):
        assert all(torch.equal(value, expected[k]) for k, value in method.state_dict().items())


def test_the_averages_are_lent_to_the_same_tensors_and_taken_back_whatever_happens(tmp_path: Path) -> None:
    trainer = begun(averaged(), tmp_path)
    for _ in range(3):
        trainer.step(0.0)
    average, before = trainer.update.average, state(trainer)
    assert isinstance(average, Average)
    places = [value.data_ptr() for value in trainer.method.state_dict().values()]
    with pytest.raises(ZeroDivisionError), average.in_place():
        lent = state(trainer)
        assert [value.data_ptr() for value in trainer.method.state_dict().values()] == places
        assert all(torch.equal(lent[k], value) for k, value in average.state_dict().items())
        raise ZeroDivisionError
    assert all(torch.equal(before[k], value) for k, value in state(trainer).items())
    assert any(not torch.equal(before[k], lent[k]) for k in before)
    assert ask_both(lambda: Fixed(0.5), None)[0] == "weights"  # type: ignore[arg-type,return-value]


def test_an_average_that_is_missing_ends_a_resumption_in_one_sentence(tmp_path: Path) -> None:
    go(tmp_path, averaged(), max_iterations=3)
    for path in tmp_path.glob("*/average.safetensors"):
        path.unlink()
    with pytest.raises(EngramError, match=r"step-00000003 lacks average\.safetensors"):
        go(tmp_path, averaged(), resume=True)


STORE = make_stores()["val"]
ASKED = Protocol("toy", "val", n_way=2, n_shot=1, n_query=2, n_sequences=40).for_store(STORE)


def answered(right: np.ndarray) -> Result:
    """A class is answered right as often as ``right`` (classes,) says, always in the same tasks."""
    tasks = frozen_tasks(STORE, ASKED)
    classes = np.take_along_axis(tasks.class_ids, tasks.query_labels, -1)
    hit = np.random.default_rng(0).random(classes.shape) < right[classes]
    said = np.where(hit, tasks.query_labels, 1 - tasks.query_labels)
    outcomes = Outcomes(tasks.query_labels, np.eye(2, dtype=np.float32)[said])
    return Result(ASKED, tasks.digest, summarise(outcomes), outcomes, 0.0)


@pytest.mark.parametrize("more,beaten", [(0.3, True), (-0.3, False), (None, False)])
def test_a_gain_counts_where_most_classes_have_it(tmp_path: Path, more: float | None, beaten: bool) -> None:
    """None: one class gains much and the others nothing, which says little of the next class."""
    n_classes = len(STORE.offsets) - 1
    before = np.full(n_classes, 0.5)
    after = np.where(np.arange(n_classes) == 0, 1.0, 0.5) if more is None else before + more
    came = AsItCame(tmp_path)
    assert came.is_beaten(answered(after), STORE, held=False) and came.summary() == {}  # nothing to compare with
    assert came.is_beaten(answered(before), STORE, held=True)
    assert came.is_beaten(answered(after), STORE, held=False) is beaten
    told = came.summary()
    assert told["frozen_accuracy"] == answered(before).accuracy and told["gain"]["classes"] == n_classes
    resumed = AsItCame(tmp_path)
    assert resumed.is_beaten(answered(after), STORE, held=False) is beaten and resumed.summary() == told
    assert not resumed.is_beaten(answered(before), STORE, held=False) and resumed.gain is not None


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", "{}", '{"accuracy": "a", "by_class": []}', '{"accuracy": 0.5, "by_class": [0.5]}'),
        '{"accuracy": NaN, "by_class": [0, 0, 0, 0, 0, 0]}',
        '{"accuracy": 0.5, "by_class": [0, 0, 0, 0, 0, 1.5]}',
    ],
)
def test_a_file_of_another_kind_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "as_it_came.json").write_text(text)
    with pytest.raises(EngramError, match="as_it_came.json"):
        AsItCame(tmp_path).is_beaten(answered(np.full(len(STORE.offsets) - 1, 0.5)), STORE, held=False)
    assert (tmp_path / "as_it_came.json").read_text() == text
