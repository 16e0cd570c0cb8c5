"""Growth: an exact slope on a power law, sizes around the recipe's, and a whole measurement of the smallest kind."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import pytest
import torch

from benchmarks import growth
from engram.errors import EngramError
from engram.recipes import load_recipe

RECIPE = load_recipe("proto_net/glyphs_5w1s")


def test_the_slope_of_a_power_law_is_its_exponent() -> None:
    sizes = [5, 10, 20, 35]
    assert growth.slope(sizes, [3 * size**1.7 for size in sizes]) == pytest.approx(1.7)
    assert growth.slope(sizes, [4.0] * 4) == pytest.approx(0)
    assert growth.slope([5, 5], [1.0, 2.0]) is None


def test_one_size_grows_and_the_others_stay() -> None:
    first, *others = growth.points(RECIPE, 28)
    assert first.recipe == RECIPE and len(others) == 2 * len(growth.AXES)
    ways = next(p for p in others if p.axis == "ways")
    assert ways.recipe == replace(RECIPE, data=replace(RECIPE.data, n_way=2 * RECIPE.data.n_way))
    side = next(p for p in others if p.axis == "image size")
    assert side.recipe == RECIPE and side.image_size == 42


def test_a_size_that_fails_is_told_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def seconds(point: growth.Point, *_: object) -> float:
        if point.axis == "shots":
            raise torch.OutOfMemoryError
        if point.axis == "queries":
            raise EngramError("too many")
        return 0.001 * point.recipe.data.n_way**2 / RECIPE.data.n_way**2

    monkeypatch.setattr(growth, "_seconds", seconds)
    monkeypatch.setattr(growth._Stores, "of", lambda self, size: {})
    found = growth.measure_growth(RECIPE, 28, torch.device("cpu"), Namespace(growth_seconds=60.0))
    assert found["ways"]["slope"] == pytest.approx(2) and len(found["ways"]["sizes"]) == 3
    assert found["shots"] == {"sizes": [RECIPE.data.n_shot], "step_total_ms": [1.0], "slope": None}
    told = capsys.readouterr().out
    assert "does not fit" in told and "too many" in told
    late = growth.measure_growth(RECIPE, 28, torch.device("cpu"), Namespace(growth_seconds=0.0))
    assert late["ways"]["slope"] is None and "(--growth-seconds)" in capsys.readouterr().out
