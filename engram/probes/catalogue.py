"""The questions of the audit as one table, and what a finding is.

A probe changes something that should not matter and looks whether the answers move. `PROBES` says in plain words what
each one asks, which claim of a method's card declares the dependence, and whether it opens a way for labels to travel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Literal

from engram.types import MethodCard

Verdict = Literal["clean", "declared", "leak", "not applicable"]
Kind = Literal["exact", "statistical"]
Unit = Literal["probability", "accuracy"]


@dataclass(frozen=True)
class Finding:
    """What one probe found. ``effect`` and ``bound`` are fractions of 1, None where the probe does not apply."""

    probe: str
    question: str
    effect: float | None
    """exact: the largest change of any probability; statistical: a difference of accuracies, with its sign"""
    unit: Unit
    bound: float | None
    """exact: the tolerance; statistical: half-width of the interval. An effect beyond it is a dependence."""
    verdict: Verdict
    kind: Kind
    declared: bool
    """the card declares this dependence, whether or not it was found"""
    detail: str = ""

    @property
    def depends(self) -> bool:
        return self.effect is not None and self.bound is not None and abs(self.effect) > self.bound


@dataclass(frozen=True)
class Probe:
    """One question of the audit."""

    name: str
    question: str
    kind: Kind = "exact"
    unit: Unit = "probability"
    declared_by: Callable[[MethodCard], bool] = lambda card: False
    opens_label_channel: bool = False
    """True: a dependence lets the order of the queries tell their labels, so declaring it does not excuse it."""

    def found(
        self, card: MethodCard, effect: float, bound: float, detail: str = "", kind: Kind | None = None
    ) -> Finding:
        """The finding for a measured effect: clean inside the bound, else declared or a leak."""
        declared = self.declared_by(card)
        verdict: Verdict = "clean"
        if abs(effect) > bound:
            verdict = "declared" if declared and not self.opens_label_channel else "leak"
        return Finding(self.name, self.question, effect, self.unit, bound, verdict, kind or self.kind, declared, detail)

    def not_applicable(self, card: MethodCard, why: str) -> Finding:
        declared = self.declared_by(card)
        return Finding(self.name, self.question, None, self.unit, None, "not applicable", self.kind, declared, why)


def _sees_company(card: MethodCard) -> bool:
    return card.transductive or card.batch_norm == "task"


_continual, _slot_memory = attrgetter("continual"), attrgetter("slot_memory")

_EXACT = (
    Probe("repeat", "Asked the same again, does it answer differently?", declared_by=attrgetter("stochastic")),
    Probe("query order", "Does an answer depend on where the query stands among the queries of its task?"),
    Probe(
        "query order, earlier tasks",
        "Does an answer depend on the order in which earlier tasks listed their queries?",
        declared_by=_slot_memory,
        opens_label_channel=True,
    ),
    Probe(
        "query order, all tasks alike",
        "Does an answer depend on the query's slot when all tasks of the stream move it alike?",
        opens_label_channel=True,
    ),
    Probe(
        "support order",
        "Does an answer depend on the order of the supports?",
        declared_by=lambda card: not card.support_order_invariant,
    ),
    Probe(
        "class relabelling",
        "Does an answer depend on which number a class was given?",
        declared_by=lambda card: not card.class_equivariant,
    ),
    Probe("company", "Does an answer depend on the other queries of the task?", declared_by=_sees_company),
    Probe("other tasks of the batch", "Does an answer depend on unrelated tasks computed at the same time?"),
    Probe("later tasks", "Does an answer depend on tasks that come later?"),
    Probe("hidden labels", "Does an answer depend on labels that the task hides?", opens_label_channel=True),
    Probe("history erased", "Does an answer depend on the past at all?", declared_by=_continual),
    Probe(
        "history permuted",
        "Does an answer depend on the order in which earlier tasks listed supports and queries?",
        declared_by=_slot_memory,
        opens_label_channel=True,
    ),
    Probe("history foreign", "Does an answer change when another stream's past is put in?", declared_by=_continual),
)

SELECTION = Probe("selection", "Were the weights chosen on the classes they are tested on?", opens_label_channel=True)

_statistical = partial(Probe, kind="statistical", unit="accuracy")
_STATISTICAL = (
    _statistical(
        "noise, class order",
        "After real tasks in class order, is a task of pure noise in class order answered other than by chance?",
        declared_by=_slot_memory,
        opens_label_channel=True,
    ),
    _statistical(
        "noise, shuffled",
        "After real tasks in shuffled order, is a task of pure noise answered other than by chance?",
        opens_label_channel=True,
    ),
    _statistical(
        "class order minus shuffled",
        "Is accuracy different when the same images are listed in class order?",
        declared_by=_slot_memory,
        opens_label_channel=True,
    ),
    _statistical(
        "class balance",
        "Is accuracy different when the classes do not have equally many queries?",
        declared_by=_sees_company,
    ),
    _statistical(
        "number of queries",
        "Is accuracy on the same queries different when one query per class is asked, not many?",
        declared_by=_sees_company,
    ),
    _statistical("gain from the past", "Does the past change accuracy on the last task?", declared_by=_continual),
    _statistical(
        "own past against foreign",
        "Is accuracy on the last task different with its own past than with another stream's?",
        declared_by=_continual,
    ),
)

PROBES: dict[str, Probe] = {probe.name: probe for probe in (*_EXACT, SELECTION, *_STATISTICAL)}
"""All questions in the order in which they are reported."""
