"""The folders of a run: what another hand put there stays, and a best one that no step knows of goes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from toy_run import go

from engram.errors import EngramError
from engram.models.checkpoint import PARTS, load, save
from engram.models.run_folder import choose, found, last_step, way_out


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
