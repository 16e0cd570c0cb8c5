"""The cards of the methods in the box, read off their source: a report needs no torch. Departures of a method's page.

``<!-- departures:begin NAME -->`` ... ``<!-- departures:end -->`` holds them, and the changes of behaviour since.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from engram.card import REVISIONS, MethodCard
from engram.errors import EngramError

METHODS = Path(__file__).parent.parent / "methods"
NAMES = {"MethodCard": MethodCard, "REVISIONS": REVISIONS}
"""all that a card in the source may name"""
NONE = "None are known."


@cache
def method_cards() -> dict[str, MethodCard]:
    """Stem -> card, one for each file of ``engram/methods`` with a ``MethodCard(...)`` in it."""
    found = {path.stem: _card(path) for path in sorted(METHODS.glob("[!_]*.py"))}
    return {stem: card for stem, card in found.items() if card is not None}


def _card(path: Path) -> MethodCard | None:
    """The one call of `MethodCard` of a file, evaluated with nothing but `NAMES` in sight."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "MethodCard":
            try:
                card = eval(compile(ast.Expression(node), path.name, "eval"), {"__builtins__": {}, **NAMES})
            except NameError as error:
                raise EngramError(
                    f"the card in {path} cannot be read without importing it ({error}): write its values out; "
                    f"of names it may use {' and '.join(NAMES)}"
                ) from error
            return card if isinstance(card, MethodCard) else None
    return None


def system_name(method: str) -> str:
    """The title on the card; a class of the user's own goes by its name."""
    cards = method_cards()
    return cards[method].title if method in cards else method


def departures_section(name: str) -> str:
    """A numbered line for each departure, its subject bold, and one for each revision."""
    card = method_cards()[name]
    parts = [_numbered(card.departures, ". ") or NONE]
    if card.revisions:
        since = _numbered([revision.what for revision in card.revisions], ": ")
        parts.append(f"Changes of behaviour since the first runs, before -> after:\n\n{since}")
    return "\n\n".join(parts)


def _numbered(lines: Sequence[str], after: str) -> str:
    """``Alpha. Paper: learned.`` -> ``1. **Alpha.** Paper: learned.``; the subject ends ``after`` this mark."""
    cut = [line.partition(after) for line in lines]
    return "\n".join(f"{number}. **{head}{mark.strip()}** {rest}" for number, (head, mark, rest) in enumerate(cut, 1))
