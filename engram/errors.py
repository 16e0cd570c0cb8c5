"""The one exception a person is meant to read: a single sentence with the file or key, both numbers and the way out."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from math import inf

LONGEST = 2000
"""characters of a sentence: a forged file may have a key of thousands"""


class EngramError(Exception):
    """Bad input, told in one sentence. The command line prints it without a traceback and exits with status 2."""

    def __init__(self, sentence: object = "") -> None:
        text = str(sentence)
        super().__init__(text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 4 :]}")


class EngramWarning(UserWarning):
    """What a person should know of an answer that is given all the same."""


def nearest(name: str, known: Iterable[str], most: int = 8) -> str:
    """``"; did you mean 'egnn'?"`` where a known name is close, else the first of the known names and their number."""
    names = sorted(known)
    folded = {known.casefold(): known for known in names}
    close = get_close_matches(name.casefold(), folded, n=1)
    if close:
        return f"; did you mean '{folded[close[0]]}'?"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"; known: {', '.join(names[:most])}{more}"


def check_settings(settings: object, *rules: tuple[str, bool, str]) -> None:
    """Refuse the first [method] key that breaks its rule: (name, whether it holds, what it must be)."""
    for name, holds, what in rules:
        if not holds:
            raise EngramError(f"[method] {name} = {getattr(settings, name)} but {what}")


def check_within(settings: object, **bounds: float | tuple[float, float]) -> None:
    """Refuse the first [method] key below the least it can be, or outside (least, most)."""
    for name, bound in bounds.items():
        least, most = bound if isinstance(bound, tuple) else (bound, inf)
        needed = f"at least {least} is needed" if most == inf else f"it makes sense from {least:g} to {most:g} alone"
        if not least <= getattr(settings, name) <= most:  # so that nan is refused too
            raise EngramError(f"[method] {name} = {getattr(settings, name)} but {needed}")
