"""How the cost of a step grows with ways, shots, queries, T and image size: one made larger, the others as they are."""

from __future__ import annotations

import argparse
import gc
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from benchmarks.measure import synthetic_store, whole_steps
from engram.data.store import Store
from engram.errors import EngramError
from engram.recipes import Recipe
from engram.training.running import Running
from engram.training.trainer import Trainer

AXES = {"ways": "n_way", "shots": "n_shot", "queries": "n_query", "T": "stream_length", "image size": ""}
"""what grows, and its key in a recipe's [data]"""
FACTORS, SIDE_FACTORS = (1.0, 2.0, 4.0), (1.0, 1.5, 2.0)
"""of the recipe's own value; the side of an image counts twice in its area"""
BLOCKS, WARM_UP = 3, 1


@dataclass(frozen=True)
class Point:
    """A recipe with one size changed."""

    axis: str
    size: int
    recipe: Recipe
    image_size: int


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float | None:
    """Least-squares slope of log cost against log size: 1 is linear, 2 quadratic; None below two sizes."""
    if len(set(sizes)) < 2:
        return None
    x, y = ([math.log(value) for value in values] for values in (sizes, costs))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - mean_x) ** 2 for a in x)


def points(recipe: Recipe, image_size: int) -> list[Point]:
    """The recipe itself once, then the next size of every axis, then the largest: a short budget thins all alike."""
    found = [Point("", 0, recipe, image_size)]
    for factor, side_factor in zip(FACTORS[1:], SIDE_FACTORS[1:], strict=True):
        for axis, key in AXES.items():
            own = getattr(recipe.data, key) if key else image_size
            size = round(own * (factor if key else side_factor))
            changes: dict[str, Any] = {key: size} if key else {}
            larger = replace(recipe, data=replace(recipe.data, **changes))
            found.append(Point(axis, size, larger, image_size if key else size))
    return found


def measure_growth(
    recipe: Recipe, image_size: int, device: torch.device, arguments: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Milliseconds of a step by axis and size, on random images; what fails or comes too late is told and left out."""
    started, stores = time.monotonic(), _Stores(recipe)
    measured: list[tuple[Point, float]] = []
    for point in points(recipe, image_size):
        what = f"{point.axis} = {point.size}" if point.axis else "the recipe itself"
        if measured and time.monotonic() - started > arguments.growth_seconds:
            print(f"left out {what}: {arguments.growth_seconds:.0f} s are over (--growth-seconds)")
            continue
        try:
            measured.append((point, 1000 * _seconds(point, stores.of(point.image_size), device, arguments)))
        except torch.OutOfMemoryError:
            print(f"left out {what}: it does not fit in the device's memory")
        except EngramError as error:
            print(f"left out {what}: {error}")
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return _by_axis(recipe, image_size, measured)


class _Stores:
    """Random images of one size at a time: those of the last size are kept for the next point."""

    def __init__(self, recipe: Recipe) -> None:
        drawn = FACTORS[-1] * (recipe.data.n_shot + recipe.data.n_query)
        self.per_class = max(math.ceil(drawn), recipe.test.n_shot + recipe.test.n_query[0])
        self.dataset = recipe.data.dataset
        self.size, self.stores = 0, dict[str, Store]()

    def of(self, image_size: int) -> dict[str, Store]:
        if image_size != self.size:
            self.stores = {
                split: synthetic_store(self.dataset, split, self.per_class, image_size) for split in ("train", "val")
            }
            self.size = image_size
        return self.stores


def _seconds(point: Point, stores: dict[str, Store], device: torch.device, arguments: argparse.Namespace) -> float:
    """A trainer of its own, so that a GPU captures the step anew; it is gone when this returns."""
    how = Running(arguments.precision, arguments.plain, arguments.micro_batch)
    trainer = Trainer(point.recipe, stores, Path("no-such-run"), device, how)
    trainer.begin(resume=False)
    return whole_steps(trainer, min(BLOCKS, arguments.repeats), WARM_UP, looks=1)


def _by_axis(recipe: Recipe, image_size: int, measured: Sequence[tuple[Point, float]]) -> dict[str, dict[str, Any]]:
    growth = {}
    for axis, key in AXES.items():
        own = getattr(recipe.data, key) if key else image_size
        pairs = sorted((p.size or own, cost) for p, cost in measured if p.axis in ("", axis))
        sizes, costs = [size for size, _ in pairs], [round(cost, 3) for _, cost in pairs]
        found = slope(sizes, costs)
        growth[axis] = {"sizes": sizes, "step_total_ms": costs, "slope": None if found is None else round(found, 3)}
    return growth


def growth_table(growth: dict[str, dict[str, Any]]) -> Table:
    table = Table("what grows", "sizes", "whole step, ms", "slope", title="growth of a step, log-log")
    for axis, found in growth.items():
        costs = ", ".join(f"{cost:.2f}" for cost in found["step_total_ms"])
        told = "" if found["slope"] is None else f"{found['slope']:.2f}"
        table.add_row(axis, ", ".join(str(size) for size in found["sizes"]), costs, told)
    return table
