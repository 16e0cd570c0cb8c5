"""One thread at a time, also in a process that was forked while another thread had its turn."""

from __future__ import annotations

import os
import threading
from types import TracebackType


class Turn:
    """A lock that a thread may take again while it has it; a forked process, which has one thread, finds it open."""

    def __init__(self) -> None:
        self._open()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._open)

    def _open(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._lock.release()
