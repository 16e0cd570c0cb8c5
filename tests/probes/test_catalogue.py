"""A declared dependence is told from a leak, and some things no claim excuses."""

from __future__ import annotations

import pytest
from planted import (
    Balanced,
    BySlot,
    FirstSupport,
    Noisy,
    OverTheBatch,
    PrefersZero,
    SecretMemory,
    quick,
)

from engram.types import Method


@pytest.mark.parametrize(
    ("method", "probe"),
    [
        (FirstSupport(support_order_invariant=False), "support order"),
        (PrefersZero(class_equivariant=False), "class relabelling"),
        (Balanced(transductive=True), "company"),
        (Balanced(batch_norm="task"), "company"),
        (SecretMemory(continual=True), "history erased"),
        (Noisy(stochastic=True), "repeat"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Method) else str(value),
)
def test_a_declared_dependence_is_told_as_such(method: Method, probe: str) -> None:
    report = quick(method)
    assert report[probe].verdict == "declared" and report.verdict == "declared", report.summary


def test_no_claim_excuses_the_slot_or_the_batch() -> None:
    everything = {"transductive": True, "continual": True, "slot_memory": True, "batch_norm": "task"}
    assert quick(BySlot(**everything))["query order"].verdict == "leak"
    assert quick(OverTheBatch(**everything))["other tasks of the batch"].verdict == "leak"
