"""A turn that another thread has, and a process that is forked meanwhile."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from engram.classifier.turns import Turn


def test_one_thread_at_a_time_and_none_in_a_forked_process() -> None:
    turn, count = Turn(), 0

    def one_more(_: int) -> None:
        nonlocal count
        with turn, turn:
            before = count
            for _ in range(100):
                pass
            count = before + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one_more, range(400)))
    assert count == 400
    with ThreadPoolExecutor(1) as pool:
        with turn:
            assert pool.submit(lambda: turn._lock.acquire(blocking=False)).result() is False
            if not (child := os.fork()):
                with turn:
                    os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
