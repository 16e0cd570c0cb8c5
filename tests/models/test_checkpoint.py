"""Checkpoints: whole or not at all, and one sentence for each way they can be wrong."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.models import checkpoint as checkpoints
from engram.models.build import build_method
from engram.models.checkpoint import Checkpoint, RunState, load, load_method, load_weights, save
from engram.recipes.schema import DataSettings, Recipe, TrainSettings

CPU = torch.device("cpu")
RECIPE = Recipe(
    "proto_net/toy",
    "proto_net",
    DataSettings("toy"),
    TrainSettings(iterations=4, sequences=2),
    backbone="conv32",
    backbone_settings={"width": 4},
    method_settings={"temperature": 2.0},
)
SHAPE = (1, 16, 16)


def make_state(iteration: int) -> RunState:
    return RunState(
        method=RECIPE.method,
        recipe=RECIPE.to_dict(),
        recipe_digest=RECIPE.digest,
        image_shape=SHAPE,
        dataset_digest="d",
        validation={},
        run_id="r",
        iteration=iteration,
        numpy_generator={"state": 2**127 + 1},
        optimiser={},
        curves={"loss": [0.1 + 0.2]},
        window={},
        best_accuracy=None,
        best_iteration=0,
        seconds=1.5,
        validation_seconds=0.5,
    )


def make_tensors() -> dict[str, dict[str, Tensor]]:
    weights = build_method(RECIPE, SHAPE, CPU).state_dict()
    return {"weights": weights, "optimiser": {}, "random": {"torch_cpu": torch.get_rng_state()}}


def folders(run: Path) -> list[str]:
    return sorted(p.name for p in run.iterdir())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with ``best-00000002`` and ``step-00000004``."""
    for iteration, best in ((2, True), (4, False)):
        save(tmp_path / "run", make_state(iteration), make_tensors(), best)
    return tmp_path / "run"


def test_newest_step_and_best_are_kept(run: Path) -> None:
    assert folders(run) == ["best-00000002", "step-00000004"]
    assert load(run).folder.name == "best-00000002"
    assert load(run, "last").folder.name == "step-00000004"
    assert load(run / "step-00000004", "best").state.iteration == 4
    assert sorted(p.name for p in (run / "best-00000002").iterdir()) == [
        "optimiser.safetensors",
        "random.safetensors",
        "state.json",
        "weights.safetensors",
    ]


def test_what_was_saved_comes_back(run: Path) -> None:
    found = load(run, "last", method="proto_net")
    assert found.recipe == RECIPE
    assert found.recipe.digest == found.state.recipe_digest
    assert replace(found.state, digests={}) == replace(make_state(4), recipe=json.loads(json.dumps(RECIPE.to_dict())))
    method = load_method(found, CPU)
    assert not method.training
    expected = build_method(RECIPE, SHAPE, CPU).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in method.state_dict().items())


def test_weights_in_another_layout_and_shared_ones_are_saved(tmp_path: Path) -> None:
    shared = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    tensors = make_tensors() | {"weights": {"a": shared, "b": shared}}
    back = load(save(tmp_path, make_state(1), tensors)).tensors("weights")
    assert torch.equal(back["a"], shared) and torch.equal(back["b"], shared)


def test_same_step_can_be_saved_again(run: Path) -> None:
    tensors = make_tensors() | {"weights": {"a": torch.ones(1)}}
    save(run, make_state(4), tensors)
    assert list(load(run, "last").tensors("weights")) == ["a"]
    assert folders(run) == ["best-00000002", "step-00000004"]


@pytest.mark.parametrize("failing", ["weights.safetensors", "state.json", "rename"])
@pytest.mark.parametrize("first", [False, True])
def test_full_disk_keeps_the_old_checkpoint(
    run: Path, monkeypatch: pytest.MonkeyPatch, failing: str, first: bool
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write = checkpoints._write
    if failing == "rename":
        monkeypatch.setattr(os, "replace", full)
    else:
        monkeypatch.setattr(
            checkpoints, "_write", lambda path, data: (full if path.name == failing else write)(path, data)
        )
    target = run.parent / "other" if first else run
    with pytest.raises(EngramError) as caught:
        save(target, make_state(6), make_tensors(), best=True)
    kept = "start again, no earlier checkpoint is there" if first else "resume, step-00000004 is kept"
    assert str(caught.value) == f"step 6 could not be saved to {target} (No space left on device): make room and {kept}"
    assert folders(target) == ([] if first else ["best-00000002", "step-00000004"])
    monkeypatch.undo()
    save(target, make_state(6), make_tensors(), best=True)
    assert folders(target) == ["best-00000006", "step-00000006"]


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [_truncate, _flip])
def test_damaged_weights_are_told_with_a_way_out(run: Path, damage: object) -> None:
    weights = run / "step-00000004" / "weights.safetensors"
    damage(weights)  # type: ignore[operator]
    with pytest.raises(EngramError) as caught:
        load_method(load(run, "last"), CPU)
    assert str(caught.value).startswith(f"{weights} is damaged")
    assert str(caught.value).endswith(f"use {run / 'best-00000002'} instead")


def test_garbage_without_a_digest_is_told_too(run: Path) -> None:
    (run / "step-00000004" / "weights.safetensors").write_bytes(b"not safetensors at all")
    found = load(run, "last")
    with pytest.raises(EngramError, match=r"weights\.safetensors cannot be read"):
        Checkpoint(found.folder, replace(found.state, digests={})).tensors("weights")


@pytest.mark.parametrize("name", ["weights.safetensors", "state.json"])
def test_missing_file_is_named(run: Path, name: str) -> None:
    (run / "step-00000004" / name).unlink()
    with pytest.raises(EngramError, match=rf"step-00000004 lacks {name}: use .*best-00000002 instead"):
        load_method(load(run / "step-00000004"), CPU)


def test_newer_format_other_method_and_broken_state(run: Path) -> None:
    with pytest.raises(EngramError, match="step-00000004 is of method 'proto_net' but 'egnn' was asked for"):
        load(run, "last", method="egnn")
    state = run / "step-00000004" / "state.json"
    raw = json.loads(state.read_text())
    state.write_text(json.dumps(raw | {"format_version": 7}))
    with pytest.raises(EngramError, match="has format version 7 but this Engram reads up to 3: update Engram"):
        load(run, "last")
    for text in ("{", "[]", "{}", json.dumps({k: v for k, v in raw.items() if k != "iteration"})):
        state.write_text(text)
        with pytest.raises(EngramError, match=r"state\.json is not the state of a checkpoint"):
            load(run, "last")


def test_what_is_no_checkpoint_at_all(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match=f"there is no checkpoint at {tmp_path / 'nowhere'}"):
        load(tmp_path / "nowhere")
    (tmp_path / "step-by-step").mkdir()
    (tmp_path / "file").write_text("text")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(EngramError, match=f"{path} is not a checkpoint: it has neither"):
            load(path)


def test_weights_that_do_not_fit_change_nothing(run: Path) -> None:
    wide = build_method(replace(RECIPE, backbone_settings={"width": 5}), SHAPE, CPU)
    before = {name: value.clone() for name, value in wide.state_dict().items()}
    with pytest.raises(
        EngramError, match=r"do not fit ProtoNet: backbone\S+ is 4\S* in the file but 5\S* in the model"
    ):
        load_weights(wide, load(run))
    assert all(torch.equal(before[name], value) for name, value in wide.state_dict().items())
