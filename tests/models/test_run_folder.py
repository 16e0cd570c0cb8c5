"""The folders of a run: what another hand put there stays, and a best one that no step knows of goes."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_run import go

from engram.errors import EngramError
from engram.models.checkpoint import PARTS, load, save
from engram.models.run_folder import (
    SCALE,
    SMALLEST,
    RunState,
    checked_state,
    choose,
    found,
    last_step,
    restored,
    rounded,
    way_out,
)


def save_at(run: Path, iteration: int) -> None:
    last = load(run, "last")
    save(run, replace(last.state, iteration=iteration), {part: last.tensors(part) for part in PARTS})  # type: ignore[arg-type]


def test_files_of_another_hand_stay(tmp_path: Path) -> None:
    go(tmp_path)
    (tmp_path / "step-00000006" / "notes.txt").write_text("mine")
    (tmp_path / ".saving").mkdir()
    (tmp_path / ".saving" / "state.json").write_text("left by a crash")
    save_at(tmp_path, 8)
    assert [p.name for p in (tmp_path / "step-00000006").iterdir()] == ["notes.txt"]
    assert last_step(tmp_path) == tmp_path / "step-00000008" and not (tmp_path / ".saving").exists()


def test_a_best_one_left_by_a_crash_goes_with_the_next_save(tmp_path: Path) -> None:
    """It was published, its step was not: the run went on from a step that never saw it."""
    go(tmp_path)
    known, stale = found(tmp_path)["best"], tmp_path / "best-00000007"
    shutil.copytree(known, stale)
    assert found(tmp_path)["best"] == stale
    save_at(tmp_path, 8)
    assert not stale.exists() and load(tmp_path).folder == known


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name in ("step-00000004", "step-00000020", "best-00000003", "step-by-step", "tensorboard"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_the_newest_of_each_kind_is_taken_and_one_kind_stands_in_for_the_other(run: Path, tmp_path: Path) -> None:
    assert last_step(run) == choose(run, "last") == run / "step-00000020"
    assert choose(run, "best") == run / "best-00000003"
    (run / "best-00000003").rmdir()
    assert choose(run, "best") == run / "step-00000020"


def test_a_broken_one_is_told_with_the_other_as_the_way_out(run: Path) -> None:
    assert way_out(run / "best-00000003") == f"use {run / 'step-00000020'} instead"
    with pytest.raises(EngramError, match="best-00000003 lacks state.json: use .*step-00000020 instead"):
        choose(run / "best-00000003", "best")
    with pytest.raises(EngramError, match="tensorboard is not a checkpoint"):
        choose(run / "tensorboard", "last")
    assert last_step(run / "tensorboard") is None


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> RunState:
    folder: Path = tmp_path_factory.mktemp("run")
    go(folder)
    return load(folder, "last").state


def test_a_state_that_was_saved_passes(state: RunState) -> None:
    assert checked_state(asdict(state)) == state


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("iteration", -1, "iteration is -1"),
        ("best_iteration", 2**62, "best_iteration is"),
        ("seconds", float("nan"), "seconds is nan"),
        ("image_shape", [1, 0, 28], "image_shape"),
        ("image_shape", [2**12, 2**12, 2], "image_shape"),
        ("curves", {"loss": [1.0], "iteration": [1, 2]}, "several lengths"),
        ("chosen", "best", "chosen"),
        ("run_id", 5, "run_id"),
    ],
)
def test_one_that_no_run_can_have_is_told(state: RunState, key: str, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        checked_state({**asdict(state), key: value})


def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    kernel = torch.randn(64, 16, 3, 3) * torch.logspace(-3, 1, 64)[:, None, None, None]
    kernel[5] = 0
    return {"kernel": kernel, "bias": torch.randn(64), "small": torch.randn(8, 8), "count": torch.tensor(7)}


def test_eight_bits_are_off_by_half_a_scale_of_their_row_at_most() -> None:
    before = weights()
    packed = rounded(before, 8)
    assert packed["kernel"].dtype == torch.int8 and packed["kernel"].shape == (64, 16, 3, 3)
    after = restored(packed)
    assert after.keys() == before.keys() and after["kernel"].dtype == torch.float32
    error = (after["kernel"] - before["kernel"]).abs().flatten(1).amax(1)
    largest = before["kernel"].abs().flatten(1).amax(1)
    assert (error <= largest / 127 * 0.5001).all() and (error[largest > 1] > 1e-4).any()
    assert (after["kernel"][5] == 0).all()


def test_what_is_small_or_whole_is_not_touched() -> None:
    before = weights()
    for bits in (8, 16):
        packed = rounded(before, bits)  # type: ignore[arg-type]
        assert packed["count"] == 7 and packed["count"].dtype == torch.int64
        assert torch.equal(packed["bias"], before["bias"].half()) and packed["small"].dtype == torch.half
    assert before["small"].numel() < SMALLEST <= before["kernel"].numel()
    assert not any(name.endswith(SCALE) for name in rounded(before, 16))


def test_other_files_are_left_as_they_are() -> None:
    before = weights()
    after = restored(before)
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)


@pytest.mark.parametrize("scales", [{"none:scale": torch.ones(4)}, {"kernel:scale": torch.ones(3)}])
def test_scales_of_nothing_are_refused(scales: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="are scales of no tensor"):
        restored({"kernel": torch.zeros(4, 2, dtype=torch.int8), **scales})
