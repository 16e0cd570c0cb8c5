"""The folders of a run: the newest of each kind, and a way out where one is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from engram.errors import EngramError
from engram.models.run_folder import choose, last_step, remove_older, way_out


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


def test_older_ones_go_and_what_is_no_checkpoint_stays(run: Path) -> None:
    remove_older(run, "step", run / "step-00000020")
    left = sorted(path.name for path in run.iterdir())
    assert left == ["best-00000003", "step-00000020", "step-by-step", "tensorboard"]


def test_a_broken_one_is_told_with_the_other_as_the_way_out(run: Path) -> None:
    assert way_out(run / "best-00000003") == f"use {run / 'step-00000020'} instead"
    with pytest.raises(EngramError, match="best-00000003 lacks state.json: use .*step-00000020 instead"):
        choose(run / "best-00000003", "best")
    with pytest.raises(EngramError, match="tensorboard is not a checkpoint"):
        choose(run / "tensorboard", "last")
    assert last_step(run / "tensorboard") is None
