"""The one exception a person is meant to read: a single sentence with the file or key, both numbers and the way out."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class EngramError(Exception):
    """Bad input, told in one sentence. The command line prints it without a traceback and exits with status 2."""


def nearest(name: str, known: Iterable[str], most: int = 8) -> str:
    """``"; did you mean 'egnn'?"`` where a known name is close, else the first of the known names and their number."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"; known: {', '.join(names[:most])}{more}"


def check_settings(settings: object, *rules: tuple[str, bool, str]) -> None:
    """Refuse the first [method] key that breaks its rule: (name, whether it holds, what it must be)."""
    for name, holds, what in rules:
        if not holds:
            raise EngramError(f"[method] {name} = {getattr(settings, name)} but {what}")
