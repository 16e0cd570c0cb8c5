"""How a run ends early: signals, minutes, a full disk, and a NaN that never reaches the disk."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_run import RECIPE, Watched, assert_same_end, go

from engram.errors import EngramError
from engram.models import checkpoint as checkpoints
from engram.models.checkpoint import load
from engram.models.run_folder import last_step
from engram.recipes.schema import Recipe


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], Recipe]:
    def install(before_loss: Callable[[int], float]) -> Recipe:
        monkeypatch.setattr(Watched, "before_loss", staticmethod(before_loss))
        monkeypatch.setattr(Watched, "steps", 0)
        monkeypatch.setattr(Watched, "progress", [])
        return replace(RECIPE, method="toy_run:Watched")

    return install


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_and_resume_goes_on_as_if_nothing_happened(
    tmp_path: Path, watch: Any, number: signal.Signals
) -> None:
    def send(step: int) -> float:
        if step == 5:
            os.kill(os.getpid(), number)
        return 1.0

    go(tmp_path / "straight", watch(lambda step: 1.0))
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    recipe = watch(send)
    stopped = go(tmp_path / "parts", recipe)
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert (stopped.status, stopped.training["stopped_by"], stopped.training["iterations"]) == (
        "interrupted",
        "signal",
        5,
    )
    assert stopped.training["best_iteration"] == 3 and stopped.curves["iteration"] == [3]
    go(tmp_path / "parts", watch(lambda step: 1.0), resume=True)
    assert_same_end(tmp_path / "straight", tmp_path / "parts")


@pytest.fixture
def heard_signals() -> Iterator[None]:
    """Python's own handler: a shell starts what it puts in the background deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_signals")
def test_signal_before_the_first_validation_and_second_one_leaves_at_once(tmp_path: Path, watch: Any) -> None:
    first = watch(lambda step: os.kill(os.getpid(), signal.SIGINT) or 1.0)
    outcome = go(tmp_path / "one", first)
    assert (outcome.status, outcome.training["iterations"], outcome.training["best_accuracy"]) == (
        "interrupted",
        1,
        None,
    )

    own_handler = signal.getsignal(signal.SIGINT)

    def twice(step: int) -> float:
        signal.raise_signal(signal.SIGINT)
        while signal.getsignal(signal.SIGINT) is not own_handler:  # two at once would count as one
            time.sleep(0.001)
        signal.raise_signal(signal.SIGINT)
        return 1.0

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "two", watch(twice))
    assert last_step(tmp_path / "two") is None


def test_minutes_end_a_run_and_its_cosine(tmp_path: Path, watch: Any) -> None:
    recipe = watch(lambda step: 1.0)
    long = replace(recipe, train=replace(recipe.train, iterations=10**6, validate_every=10**6))
    outcome = go(tmp_path, long, max_minutes=0.3 / 60)
    assert (outcome.status, outcome.training["stopped_by"]) == ("finished", "max_minutes")
    assert outcome.curves["iteration"] == [outcome.training["iterations"]]
    assert Watched.progress == sorted(Watched.progress) and 0.5 < Watched.progress[-1] <= 1
    assert outcome.curves["learning_rate"][0] < 0.5 * long.train.learning_rate
    watch(lambda step: 1.0)
    go(tmp_path, long, resume=True, max_minutes=0.05 / 60)
    assert max(Watched.progress) < 0.01  # by iterations again


@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_nan_stops_and_good_weights_are_kept(tmp_path: Path, watch: Any, factor: float) -> None:
    with pytest.raises(EngramError) as caught:
        go(tmp_path, watch(lambda step: factor if step == 5 else 1.0))
    assert str(caught.value).startswith(f"the loss is not finite at step 5: loss = {factor}")  # and its terms
    assert f"the last good checkpoint {tmp_path / 'step-00000003'} is kept" in str(caught.value)
    assert all(bool(torch.isfinite(v).all()) for v in load(tmp_path, "last").tensors("weights").values())


def test_nan_in_the_weights_alone_is_not_saved_either(
    tmp_path: Path, watch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = torch.optim.Adam.step

    def broken_step(self: torch.optim.Adam, *arguments: Any) -> Any:
        result = step(self, *arguments)
        if Watched.steps == 6:
            with torch.no_grad():
                self.param_groups[0]["params"][0].fill_(float("nan"))
        return result

    recipe = watch(lambda step: 1.0)
    monkeypatch.setattr(torch.optim.Adam, "step", broken_step)
    with pytest.raises(EngramError, match=r"the weights \(backbone.*\) are not finite after step 6: .*step-00000003"):
        go(tmp_path, recipe)
    assert load(tmp_path, "last").state.iteration == 3


def test_full_disk_ends_the_run_and_keeps_the_step_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = checkpoints._write

    def full_at_six(path: Path, data: bytes) -> None:
        if path.name == "state.json" and json.loads(data)["iteration"] == 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    monkeypatch.setattr(checkpoints, "_write", full_at_six)
    with pytest.raises(EngramError, match=r"step 6 could not be saved .*No space left.*step-00000003 is kept"):
        go(tmp_path)
    monkeypatch.undo()
    assert go(tmp_path, resume=True).training["iterations"] == 6
