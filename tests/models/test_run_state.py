"""The state of a run at the door: right kinds, numbers a run can have."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from toy_run import go

from engram.models.checkpoint import load
from engram.models.run_state import RunState, checked_state


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
