"""Options: keywords and flags out of one table, and short signatures in front of them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import engram
from engram.errors import EngramError
from engram.ledger import RESULTS
from engram.options import (
    ASKABLE,
    DEFAULTS,
    DRAWN,
    AuditKeywords,
    AuditOptions,
    BenchKeywords,
    BenchOptions,
    TrainOptions,
    defaults,
    read,
)
from engram.probes.audit import audit_model
from engram.training import loop

CALLS = (engram.train, engram.bench, engram.audit, audit_model, loop.train, engram.evaluate, engram.compare)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__qualname__)
def test_a_call_has_at_most_eight_parameters(call: Any) -> None:
    assert len(inspect.signature(call).parameters) <= 8


@pytest.mark.parametrize(
    ("table", "flags", "also"),
    [(BenchKeywords, BenchOptions, ASKABLE), (AuditKeywords, AuditOptions, DRAWN)],
)
def test_type_checkers_are_told_of_every_option(table: type[Any], flags: type[Any], also: tuple[str, ...]) -> None:
    """A key of the protocol that `engram bench` can ask for is missing here until its keyword is written."""
    assert set(get_type_hints(table)) == set(get_type_hints(flags)) | set(also)


def test_a_misspelt_option_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="train has no option 'max_minute'; did you mean 'max_minutes'"):
        engram.train("proto_net/glyphs_quick", max_minute=1)  # type: ignore[call-arg]
    with pytest.raises(EngramError, match="bench has no option 'n_ways'; did you mean 'n_way'"):
        engram.bench("chance", recipe="proto_net/glyphs_quick", n_ways=3)  # type: ignore[call-arg]
    with pytest.raises(EngramError, match="audit has no option 'n_ways'; did you mean 'n_way'"):
        audit_model("chance", recipe="proto_net/glyphs_quick", n_ways=3)  # type: ignore[call-arg]
    with pytest.raises(EngramError, match="bench has no option 'batch_norm'"):  # the model's card says it
        engram.bench("chance", recipe="proto_net/glyphs_quick", batch_norm="task")  # type: ignore[call-arg]


def test_what_is_not_given_is_at_its_default() -> None:
    plain = defaults(TrainOptions)
    assert plain.keys() == get_type_hints(TrainOptions).keys() and plain.keys() >= {"seed", "resume", "test"}
    assert (plain["seed"], plain["resume"], plain["test"], plain["results"]) == (None, False, True, RESULTS)
    assert read("train", TrainOptions, {"note": "x", "seed": 0}) == {**plain, "note": "x", "seed": 0}
    assert set(DEFAULTS) <= {key for table in (TrainOptions, BenchOptions) for key in get_type_hints(table)}
