"""The loop: exact resume, what it reports, and what it refuses before anything is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_run import RECIPE, STAGE_ONE, assert_same_end, go, make_stores

from engram.data.store import Store
from engram.errors import EngramError
from engram.machine.interruptions import RunLock
from engram.models.checkpoint import load, load_method
from engram.nn import adapt
from engram.recipes.schema import TestSettings


@pytest.mark.parametrize(("optimiser", "lengths"), [("adam", ()), ("sgd", (1, 3))])
def test_resume_equals_a_run_without_a_break(tmp_path: Path, optimiser: Any, lengths: tuple[int, ...]) -> None:
    data = replace(RECIPE.data, stream_length_range=lengths, pool_range=(3, 6) if lengths else ())
    recipe = replace(RECIPE, data=data, train=replace(RECIPE.train, optimiser=optimiser))
    straight = go(tmp_path / "straight", recipe)
    half = go(tmp_path / "parts", recipe, max_iterations=3)
    assert (half.status, half.training["stopped_by"], half.training["iterations"]) == ("finished", "max_iterations", 3)
    torch.rand(7)
    resumed = go(tmp_path / "parts", recipe, resume=True)
    assert_same_end(tmp_path / "straight", tmp_path / "parts")
    assert resumed.curves == straight.curves
    assert resumed.training["resumed_from"] == half.run_id != resumed.run_id
    best, again = straight.method.state_dict(), resumed.method.state_dict()
    assert all(torch.equal(best[name], again[name]) for name in best)


def test_outcome_tells_all_a_run_record_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    outcome = go(
        tmp_path,
        replace(RECIPE, train=replace(RECIPE.train, validate_every=4)),
        on_validation=lambda i, _: seen.append(i),
    )
    assert seen == outcome.curves["iteration"] == [4, 6]
    keys = {
        "iteration",
        "loss",
        "learning_rate",
        "train_nll",
        "train_accuracy",
        "validation_accuracy",
        "validation_interval",
    }
    assert {name for name, values in outcome.curves.items() if len(values) == 2} == keys
    training = outcome.training
    assert outcome.status == "finished" and training["stopped_by"] == "iterations" and training["iterations"] == 6
    assert training["best_accuracy"] == max(outcome.curves["validation_accuracy"])
    assert training["card"]["title"] == "Prototypical Net"
    assert training["parameters"] == sum(p.numel() for p in outcome.method.parameters())
    assert 0 < training["validation_seconds"] < training["seconds"] and training["tasks_per_second"] > 0
    json.dumps([training, outcome.curves])
    assert not outcome.method.training
    best = load_method(load(tmp_path), torch.device("cpu")).state_dict()
    assert all(torch.equal(best[name], value) for name, value in outcome.method.state_dict().items())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[0].startswith("step 4/6 loss ") and "validation" in lines[0] and "best" in lines[0]


def test_folders_in_use_and_runs_of_others_are_left_alone(tmp_path: Path) -> None:
    with RunLock(tmp_path / "held"), pytest.raises(EngramError, match="is in use by another run"):
        go(tmp_path / "held")
    with pytest.raises(EngramError, match="is not a checkpoint"):
        go(tmp_path / "empty", resume=True)
    first = go(tmp_path / "run")
    with pytest.raises(EngramError, match="holds a run up to step-00000006: resume it, or choose another folder"):
        go(tmp_path / "run")
    with pytest.raises(EngramError, match=r"is of method 'proto_net' but .*Watched' was asked for"):
        go(tmp_path / "run", replace(RECIPE, method="toy_run:Watched"), resume=True)
    with pytest.raises(EngramError, match="cannot be resumed: its recipe has the digest"):
        go(tmp_path / "run", replace(RECIPE, train=replace(RECIPE.train, learning_rate=0.5)), resume=True)
    with pytest.raises(EngramError, match="cannot be resumed: its training data has the digest"):
        go(tmp_path / "run", stores=make_stores(seed=1), resume=True)
    again = go(tmp_path / "run", resume=True)  # nothing left to do
    assert again.curves == first.curves and again.training["stopped_by"] == "iterations"


def test_what_cannot_be_trained_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for recipe, sentence in (
        (replace(RECIPE, method="chance"), "method 'chance' has nothing to train"),
        (replace(RECIPE, backbone="flatten"), "has no parameters to train"),
        (replace(RECIPE, test=TestSettings(n_way=50)), "50 ways were asked for but toy val offers 6 classes"),
    ):
        with pytest.raises(EngramError, match=sentence):
            go(tmp_path / "run", recipe)
    with pytest.raises(EngramError, match="but val was not given"):
        go(tmp_path / "run", stores={"train": make_stores()["train"]})
    with pytest.raises(EngramError, match="max_minutes = 0 but it must be above 0"):
        go(tmp_path / "run", max_minutes=0)
    assert not (tmp_path / "run").exists()


def test_features_train_without_augmentation(tmp_path: Path) -> None:
    features = {s: Store.from_arrays(torch.randn(30, 8), [5] * 6, "toy", s) for s in ("train", "val")}
    recipe = replace(RECIPE, backbone="toy_run:Perceptron")
    assert go(tmp_path, recipe, stores=features).status == "finished"


def test_an_inner_rate_that_diverges_names_the_inner_step_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapt, "RATES", (0.0, 1e30))  # a rate that surely diverges is refused at once
    settings = {"n_way": 3, "inner_rate": 1e30, "inner_steps": 3}
    recipe = replace(RECIPE, method="maml", method_settings=settings, data=replace(RECIPE.data, stream_length=1))
    with pytest.raises(EngramError, match=r"broke at inner step [123]: .*with a lower inner rate in .method."):
        go(tmp_path / "run", recipe)


def test_some_classes_alone_are_trained_on(tmp_path: Path) -> None:
    """As if the others were not there, and with the classes of validation as they are."""
    half = replace(STAGE_ONE, data=replace(STAGE_ONE.data, train_classes=(3, 6)))
    half = replace(half, method_settings={"n_base_classes": 3})
    go(tmp_path / "half", half)
    stores = make_stores()
    alone = Store.from_arrays(stores["train"].images[15:], [5] * 3, "toy", "train")
    go(tmp_path / "alone", replace(half, data=STAGE_ONE.data), stores={**stores, "train": alone})
    assert_same_end(tmp_path / "half", tmp_path / "alone")
    with pytest.raises(EngramError, match=r"train_classes = \[0, 7\] but toy train has 6 classes"):
        go(tmp_path / "more", replace(half, data=replace(half.data, train_classes=(0, 7))))
    assert not (tmp_path / "more").exists()
