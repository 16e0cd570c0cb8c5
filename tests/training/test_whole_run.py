"""A time box that counts from the start of the run: stopped and resumed, its cosine still ends with its minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toy_run import RECIPE, Watched, go


def test_a_resumed_box_has_only_the_minutes_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "before_loss", staticmethod(lambda step: 1.0))
    monkeypatch.setattr(Watched, "steps", 0)
    monkeypatch.setattr(Watched, "progress", [])
    long = replace(
        RECIPE, method="toy_run:Watched", train=replace(RECIPE.train, iterations=10**6, validate_every=10**6)
    )
    first = go(tmp_path, long, max_minutes=0.3 / 60)
    spent = first.training["seconds"]
    second = go(tmp_path, long, resume=True, max_minutes=2 * spent / 60, whole_run=True)
    assert second.training["stopped_by"] == "max_minutes"
    resumed = Watched.progress[first.training["iterations"] :]
    assert 0.4 < min(resumed) < 0.75 and max(resumed) > 0.9  # it began in the middle and came to the end
