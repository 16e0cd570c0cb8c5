"""One run for each folder, and a stop that is asked for: the lock of a run folder, Ctrl-C and SIGTERM."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from engram.errors import EngramError

INTERRUPTED = 130
"""exit status of a training that was stopped and saved, as a shell has it after Ctrl-C"""


class RunLock:
    """Context manager that holds ``run.lock`` in a run folder; the system lets go of it when the process ends.

    A second run gets one sentence and the first is left alone.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor = -1

    def __enter__(self) -> RunLock:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.folder / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise EngramError(f"the run folder {self.folder} cannot be written to: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(self._descriptor, 20).decode(errors="replace").strip()
            self._close()
            raise EngramError(
                f"the run folder {self.folder} is in use by another run (process {holder or 'unknown'}): "
                f"wait for it, or choose another folder"
            ) from error
        except OSError as error:
            self._close()
            raise EngramError(
                f"the run folder {self.folder} cannot be locked ({error.strerror}): use a local disk"
            ) from error
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # the number is only for the sentence above; a full disk shows itself at the first checkpoint
        return self

    def __exit__(self, *_: object) -> None:
        # The file stays: removing it would let two later runs lock two different files of one name.
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


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
