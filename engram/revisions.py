"""Changes of behaviour of the methods in the box, by stem: what their cards show. A report asks without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engram.card import Revision

REVISIONS: dict[str, tuple[Revision, ...]] = {}


def revisions_of(method: str, method_settings: Mapping[str, Any]) -> tuple[Revision, ...]:
    """Those that concern a model with this [method] table; of a class of the user's own only its code knows."""
    return tuple(r for r in REVISIONS.get(method, ()) if r.concerns(method_settings))


def stated_revision(revisions: tuple[Revision, ...], trained: int) -> int:
    """What a record states whose weights were trained at a revision: today's where no change since asks for a training
    anew, else that of the training."""
    return trained if any(r.retrain for r in revisions[trained:]) else len(revisions)
