"""Ctrl-C and SIGTERM as a polite request."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any


class StopRequest:
    """Context manager: the first signal sets ``requested``; a second acts as ever: Ctrl-C again leaves at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # Python allows handlers nowhere else
            self._previous = {number: signal.signal(number, self._handle) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._restore()
        # A plain write: print is not safe inside a handler that may have interrupted a print.
        os.write(2, b"\nstopping after this step and saving; press Ctrl-C again to leave at once\n")

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            # None stands for a handler that was not set from Python and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous = {}
