"""A bar on the terminal for what takes longer than two seconds; nothing elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

PATIENCE = 2.0
"""seconds before a bar is shown"""
Part = TypeVar("Part", bound=Sized)


def watched(parts: Iterable[Part], total: int, what: str) -> Iterator[Part]:
    """The parts, one after another; the bar counts their sizes up to ``total``. It goes when all is done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield from parts
        return
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    bar, begun = Progress(*columns, console=console, transient=True), time.monotonic()
    job = bar.add_task(what, total=total)
    try:
        for part in parts:
            yield part
            bar.advance(job, len(part))
            if time.monotonic() - begun > PATIENCE:
                bar.start()
    finally:
        bar.stop()
