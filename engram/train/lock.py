"""One writer for each run folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from engram.errors import EngramError


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
