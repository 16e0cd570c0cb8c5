"""What `import engram` offers: every name is there, and those that are modules too can be called, again and again."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import engram
from engram.errors import EngramError


@pytest.mark.parametrize("name", [n for n in dir(engram) if not n.startswith("_")])
def test_every_name_can_be_had(name: str) -> None:
    assert getattr(engram, name) is not None


@pytest.mark.parametrize("name", ["train", "bench", "quickstart", "audit", "compare"])
def test_calls_stay_calls_after_their_modules_are_imported(name: str) -> None:
    for module in ("engram.training.experiment", "engram.evaluation.bench", "engram.tour", "engram.probes.audit"):
        importlib.import_module(module)
        assert callable(getattr(engram, name))


def test_the_quickstart_is_a_call_the_second_time_too(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(EngramError, match="seconds = 0 but training needs more than 0"):
            engram.quickstart(out=tmp_path / "out", seconds=0)
