"""Each probe finds the one fault that was planted for it."""

from __future__ import annotations

import pytest
from planted import (
    Balanced,
    BySlot,
    Clairvoyant,
    FirstSupport,
    KeepsState,
    Noisy,
    NoisyCompany,
    OverTheBatch,
    Planted,
    PrefersZero,
    SecretMemory,
    quick,
)

from engram.types import Method


@pytest.mark.parametrize(
    ("method", "leaks"),
    [
        (Planted(), set()),
        (BySlot(), {"query order", "query order, all tasks alike", "class relabelling", "company"}),
        (FirstSupport(), {"support order"}),
        (PrefersZero(), {"class relabelling"}),
        (Balanced(), {"company"}),
        (OverTheBatch(), {"other tasks of the batch"}),
        (Clairvoyant(), {"later tasks"}),
        (SecretMemory(), {"history erased", "history foreign"}),
        (Noisy(), {"repeat"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Method) else "",
)
def test_an_undeclared_fault_is_a_leak(method: Method, leaks: set[str]) -> None:
    found = {f.probe for f in quick(method).findings if f.verdict == "leak"}
    # An undeclared sampler moves whatever is asked twice.
    assert leaks <= found if isinstance(method, Noisy) else leaks == found


def test_state_kept_between_calls_is_a_leak() -> None:
    assert quick(KeepsState())["repeat"].verdict == "leak"


def test_samplers_are_judged_by_the_means_of_their_draws() -> None:
    honest, hidden = quick(Noisy(stochastic=True)), quick(NoisyCompany(stochastic=True))
    assert honest["company"].verdict == "clean" and honest["company"].kind == "statistical"
    assert hidden["company"].verdict == "leak"
