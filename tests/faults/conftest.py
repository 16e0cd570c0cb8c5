"""What was tried, kind by kind: the table that `make test-faults` prints."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

TRIED: Counter[str] = Counter()
FAILED: Counter[str] = Counter()


@pytest.fixture
def sample() -> int:
    """How many inputs of each kind are tried; 0 = all of them."""
    return int(os.environ.get("ENGRAM_FAULTS", 60))


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
