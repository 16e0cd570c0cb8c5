"""What a call did, by how its runs ended."""

from __future__ import annotations

from engram.reproduction.outcome import Reproduced
from engram.reproduction.place import Place
from engram.reproduction.plan import make_plan
from engram.reproduction.process import Ended


def test_runs_are_sorted_by_how_they_ended(place: Place) -> None:
    outcome = Reproduced(make_plan([], "short", (), place))
    outcome.add("a", Ended("finished", 1.0))
    outcome.add("b", Ended("failed", 1.0, "out of memory"))
    outcome.add("c", Ended("stopped", 1.0))
    assert (outcome.finished, outcome.failed, outcome.left) == (["a"], {"b": "out of memory"}, ["c"])
    assert outcome.report is None
