"""The one exception a person is meant to read: a single sentence with the file or key, both numbers and the way out."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class EngramError(Exception):
    """Bad input, told in one sentence. The command line prints it without a traceback and exits with status 2."""


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'egnn'?"`` where a known name is close, else the list of the known names."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(names)}"
