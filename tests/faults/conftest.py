"""What was tried, kind by kind: the table that `make test-faults` prints and keeps."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable

import pytest
from recorded import keep

TRIED: Counter[str] = Counter()
FAILED: Counter[str] = Counter()
SEED = int(os.environ.get("ENGRAM_FAULTS_SEED", 1))
BEGAN = time.monotonic()


@pytest.fixture
def sample() -> int:
    """How many inputs of each kind are tried; 0 = all of them."""
    return int(os.environ.get("ENGRAM_FAULTS", 60))


@pytest.fixture
def seed() -> int:
    return SEED


@pytest.fixture
def tally() -> Callable[..., None]:
    def count(kind: str, tried: int, failed: int = 0) -> None:
        TRIED[kind] += tried
        FAILED[kind] += failed

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not TRIED:
        return
    width = max(map(len, TRIED))
    terminalreporter.write_line(f"\n{'what':{width}}  tried  failed")
    for kind in TRIED:
        terminalreporter.write_line(f"{kind:{width}}  {TRIED[kind]:5,}  {FAILED[kind]:6,}")
    terminalreporter.write_line(f"{'all':{width}}  {TRIED.total():5,}  {FAILED.total():6,}")
    kinds = {kind: {"tried": TRIED[kind], "failed": FAILED[kind]} for kind in TRIED}
    if path := keep("faults", seed=SEED, kinds=kinds, seconds=round(time.monotonic() - BEGAN)):
        terminalreporter.write_line(f"wrote {path}")
