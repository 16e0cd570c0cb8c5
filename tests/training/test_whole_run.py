"""A time box that counts from the start of the run: stopped and resumed, its cosine still ends with its minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from toy_run import RECIPE, Watched, go

from engram.training import trainer


def test_a_resumed_box_has_only_the_minutes_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which a step takes a second, however busy the machine is."""
    monkeypatch.setattr(Watched, "before_loss", staticmethod(lambda step: 1.0))
    monkeypatch.setattr(Watched, "steps", 0)
    monkeypatch.setattr(Watched, "progress", [])
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: float(Watched.steps)))
    long = replace(
        RECIPE, method="toy_run:Watched", train=replace(RECIPE.train, iterations=10**6, validate_every=10**6)
    )
    first = go(tmp_path, long, max_minutes=10 / 60)
    assert first.training["seconds"] == 10
    second = go(tmp_path, long, resume=True, max_minutes=20 / 60, whole_run=True)
    assert second.training["stopped_by"] == "max_minutes"
    resumed = Watched.progress[first.training["iterations"] :]
    assert resumed == pytest.approx([0.05 * step for step in range(10, 20)])  # from the middle to the end
