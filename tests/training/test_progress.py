"""What a person sees of a run: lines, times and curves."""

from __future__ import annotations

from pathlib import Path

from toy_run import go


def test_tensorboard_gets_its_curves(tmp_path: Path) -> None:
    go(tmp_path, tensorboard=True)
    assert list((tmp_path / "tensorboard").glob("events.*"))
