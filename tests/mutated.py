"""JSON with one value exchanged for another: every path of a file, values of every kind, a fixed order."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, "", "text", "../..", 0, -1, 0.5, 2**70, -(2**63), 10**12, float("nan"), float("inf"), [], {}, [None],
    {"a": {"b": []}}, [[[1]]], "x" * 300, "\ud800",
)  # fmt: skip
REMOVED = object()


def paths(value: Any, below: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of every entry of tables and of the first two of lists."""
    entries = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*below, key)
        yield from paths(entry, (*below, key))


def mutations(value: Any, seed: int, most: int | None = None) -> list[tuple[str, Any]]:
    """(what was changed, the whole with it); ``most`` draws as many of all."""
    chosen = [(path, other) for path in paths(value) for other in (REMOVED, *VALUES)]
    if most is not None:
        chosen = random.Random(seed).sample(chosen, min(most, len(chosen)))
    return [(f"{'.'.join(map(str, path))} = {str(other)[:40]}", _with(value, path, other)) for path, other in chosen]


def _with(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    changed = copy.deepcopy(value)
    place = changed
    for key in path[:-1]:
        place = place[key]
    if other is REMOVED:
        del place[path[-1]]
    else:
        place[path[-1]] = copy.deepcopy(other)
    return changed
