"""Changes of behaviour of the methods in the box, by stem: what their cards show. A report asks without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engram.card import Revision

REVISIONS: dict[str, tuple[Revision, ...]] = {
    "cml_bgnn": (
        Revision(
            "eq. 7: D of at least 1e-6, below which all edges grow equal -> A from logarithms, D as small as it is",
            {"edges": (None, "paper"), "history": (None, "none", "slot")},
        ),
    ),
    "tadam": (
        Revision(
            "base classes: their loss times 0.9 annealed added to the tasks', one clipping and one momentum, their "
            "classifier decayed -> a step of their own with that probability before the tasks', clipping and momentum "
            "of its own, their classifier started by Xavier's rule and not decayed",
            {"auxiliary": (None, True)},
        ),
        Revision("task embedding: started by PyTorch's rule -> weights from N(0, 0.2 / outputs), biases at 0"),
    ),
}


def revisions_of(method: str, method_settings: Mapping[str, Any]) -> tuple[Revision, ...]:
    """Those that concern a model with this [method] table; of a class of the user's own only its code knows."""
    return tuple(r for r in REVISIONS.get(method, ()) if r.concerns(method_settings))


def stated_revision(revisions: tuple[Revision, ...], trained: int) -> int:
    """What a record states whose weights were trained at a revision: today's where no change since asks for a training
    anew, else that of the training."""
    return trained if any(r.retrain for r in revisions[trained:]) else len(revisions)
