"""How a record lies on disk: JSON that a person can read and that takes little room. Standard library only."""

from __future__ import annotations

import json
import math
from typing import Any

DEEP = 3
"""such as the metrics of one evaluation, or a setting of a recipe's table"""
DIGITS = 8
"""of what was measured; intervals are far wider than the ones left out, and a record stays small"""


def finite(value: Any) -> Any:
    """NaN and infinity as None: they are not JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def rounded(value: Any) -> Any:
    """Every float to `DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


def readable(raw: dict[str, Any]) -> str:
    """JSON with one key to a line; a list or an inner table of plain values stands on one, and so does all that lies
    `DEEP`: a curve is read along, not down, and neither indents nor spaces take room."""
    return _laid_out(raw, 0) + "\n"


def _laid_out(value: Any, depth: int) -> str:
    tree = isinstance(value, dict | list) and depth < DEEP
    if not tree or (all(map(_is_plain, _inner(value))) and (depth or isinstance(value, list))):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    line, (start, end) = "\n" + " " * depth, "{}" if isinstance(value, dict) else "[]"
    names = [f"{json.dumps(key)}: " for key in sorted(value)] if isinstance(value, dict) else [""] * len(value)
    parts = [name + _laid_out(part, depth + 1) for name, part in zip(names, _inner(value), strict=True)]
    return f"{start}{line} " + f",{line} ".join(parts) + f"{line}{end}"


def _inner(value: dict[str, Any] | list[Any]) -> list[Any]:
    return [value[key] for key in sorted(value)] if isinstance(value, dict) else value


def _is_plain(value: Any) -> bool:
    return not value or not isinstance(value, dict | list)
