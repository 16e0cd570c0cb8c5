"""What a method says of itself: abilities, departures from its paper, revisions of its behaviour. Needs no torch.

The cards of the methods in the box are read off their source, so that a report needs no torch either.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from engram.errors import EngramError


@dataclass(frozen=True)
class Revision:
    """One change of behaviour: runs from before it answer another question and are never pooled with later ones."""

    what: str
    """one line: before and after"""
    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """only models whose [method] table has one of these values behave otherwise; None: the table is silent; {} = all"""
    retrain: bool = True
    """weights from before are those of another method; False: only the way they answer has changed"""

    def concerns(self, method_settings: Mapping[str, Any]) -> bool:
        return all(method_settings.get(key) in values for key, values in self.settings.items())


@dataclass(frozen=True)
class MethodCard:
    """What a method claims of itself. `tests/test_contract.py` and the audit hold every method to it."""

    title: str
    paper: str
    transductive: bool = False
    """A query's answer depends on the other queries of its task."""
    continual: bool = False
    """Reads `history` and returns one."""
    slot_memory: bool = False
    """History is carried by slot, so the order of the queries matters from the second task on."""
    stochastic: bool = False
    """Evaluation draws random samples."""
    semi_supervised: bool = False
    """Uses unlabelled supports (label -1)."""
    class_equivariant: bool = True
    """Renaming the classes renames the answers and nothing else."""
    support_order_invariant: bool = True
    batch_norm: Literal["none", "running", "support", "task"] = "running"
    """What normalises at test: nothing, running statistics, those of the support set (and of the one query asked), or
    those of all images of the task, which lets queries see each other."""
    fixed_ways: bool = False
    fixed_shots: bool = False
    trainable: bool = True
    trained_on: tuple[str, ...] = ("train",)
    exportable: bool = False
    by_class_means: bool = False
    """Sees the supports of a class through their mean, or nearly so: a mean may stand for them where they are many."""
    samples_key: str = ""
    """The [method] key for how many samples of its posterior an answer averages; "" where it has no posterior."""
    inner_steps_key: str = ""
    """The [method] key for the gradient steps in which it adapts to a task; "" where it makes one or none."""
    query_statistics: bool = False
    """A [method] key of this name says whether a task's queries are normalised together."""
    task_norm_key: str = ""
    """The [method] key that has the images of a task normalised together, in training and test, where it is "task"."""
    base_classes: bool = False
    """Keeps something for each class of the training split: [method] n_base_classes."""
    departures: tuple[str, ...] = ()
    """From the paper or its code, both values: ``Subject. Paper: one. Ours: another.`` The method's page lists them."""
    revisions: tuple[Revision, ...] = ()
    """Changes of behaviour since the first runs, oldest first; a new one goes to the end and none ever goes.
    The number of those that concern a model is the revision its records state."""

    def normalising_together(self) -> MethodCard:
        """The card of a model whose BatchNorm sees all images of a task at once, so that queries see each other."""
        return replace(self, transductive=True, batch_norm="task")


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
    "versa": (
        Revision(
            "samples at test: one table of 10 draws for all queries, off by up to 0.15 -> 1,024 evenly spread ones",
            retrain=False,
        ),
    ),
}


def revisions_of(method: str, method_settings: Mapping[str, Any]) -> tuple[Revision, ...]:
    """Those that concern a model with this [method] table; of a class of the user's own only its code knows."""
    return tuple(r for r in REVISIONS.get(method, ()) if r.concerns(method_settings))


def stated_revision(revisions: tuple[Revision, ...], trained: int) -> int:
    """What a record states whose weights were trained at a revision: today's where no change since asks for a training
    anew, else that of the training."""
    return trained if any(r.retrain for r in revisions[trained:]) else len(revisions)


SOURCES = Path(__file__).parent / "methods"
READ_AS = {"MethodCard": MethodCard, "REVISIONS": REVISIONS}
"""all that a card in the source may name"""


@cache
def method_cards() -> dict[str, MethodCard]:
    """Stem -> card, one for each file of ``engram/methods`` with a ``MethodCard(...)`` in it."""
    found = {path.stem: _card(path) for path in sorted(SOURCES.glob("[!_]*.py"))}
    return {stem: card for stem, card in found.items() if card is not None}


def _card(path: Path) -> MethodCard | None:
    """The one call of `MethodCard` of a file, evaluated with nothing but `READ_AS` in sight."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "MethodCard":
            try:
                card = eval(compile(ast.Expression(node), path.name, "eval"), {"__builtins__": {}, **READ_AS})
            except NameError as error:
                raise EngramError(
                    f"the card in {path} cannot be read without importing it ({error}): write its values out; "
                    f"of names it may use {' and '.join(READ_AS)}"
                ) from error
            return card if isinstance(card, MethodCard) else None
    return None


def system_name(method: str) -> str:
    """The title on the card; a class of the user's own goes by its name."""
    cards = method_cards()
    return cards[method].title if method in cards else method
