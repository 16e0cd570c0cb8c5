"""One run for each folder, and a stop that is asked for."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from engram.errors import EngramError
from engram.machine.interruptions import RunLock, StopRequest


def test_second_run_is_refused_and_the_first_left_alone(tmp_path: Path) -> None:
    with RunLock(tmp_path / "run"):
        for _ in range(2):
            with pytest.raises(EngramError, match=rf"is in use by another run \(process {os.getpid()}\)"):
                RunLock(tmp_path / "run").__enter__()
    with RunLock(tmp_path / "run"):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(EngramError, match="cannot be written to"), RunLock(tmp_path / "file"):
        pass


@pytest.mark.parametrize("number", StopRequest.SIGNALS)
def test_a_first_signal_asks_and_a_second_acts_as_ever(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    heard: list[int] = []
    before = signal.signal(number, lambda received, frame: heard.append(received))
    own = signal.getsignal(number)
    try:
        with StopRequest() as stop:
            assert not stop.requested
            signal.raise_signal(number)
            assert stop.requested and not heard
            signal.raise_signal(number)
            assert heard == [number]
        assert signal.getsignal(number) is own
    finally:
        signal.signal(number, before)
    assert capfd.readouterr().err.count("stopping after this step and saving") == 1


def test_outside_the_main_thread_handlers_are_left_alone() -> None:
    seen: list[bool] = []

    def work() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with StopRequest() as stop:
            seen.append(signal.getsignal(signal.SIGTERM) is before and not stop.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
