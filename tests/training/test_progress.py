"""What a person sees of a run: lines, times and curves."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_run import go

from engram.training.progress import Display, Pace, ScalarLog, clock


def test_tensorboard_gets_its_curves(tmp_path: Path) -> None:
    go(tmp_path, tensorboard=True)
    assert list((tmp_path / "tensorboard").glob("events.*"))


@pytest.mark.parametrize(("seconds", "text"), [(3.4, "0:03"), (123, "2:03"), (3723, "1:02:03"), (-1, "0:00")])
def test_times_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_where_there_is_no_terminal_each_validation_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Display("a run", 6, enabled=True) as display:
        display.update(1, {"loss": 1.0}, Pace(5.0, 60.0))
        display.validated(3, {"loss": 0.5}, {"accuracy": 0.75, "interval": 0.01}, "best 75.00%", Pace(1234.0, 61.0))
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err == "step 3/6 loss 0.5000 validation 75.00% ± 1.00% best 75.00% 1,234 tasks/s 1:01 left\n"


def test_curves_that_cannot_be_written_end_no_run(tmp_path: Path) -> None:
    class Full:
        def add_scalar(self, *_: object) -> None:
            raise OSError("No space left on device")

    with ScalarLog(tmp_path, enabled=False, first_step=0) as log:
        log._writer = Full()
        log.add(1, "train", {"loss": 0.5, "name": "no number"})
        assert log._writer is None
