"""Weights that have a name: which encoders come with the package, what answers best on each, and how sure it should be.

``engram/weights/box.json`` has one entry for each name. Its numbers were fitted on validation classes by
``benchmarks/own_images.py``; the model cards beside it say what the encoders learned from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from engram.files import WEIGHTS


@dataclass(frozen=True)
class Boxed:
    """One kind of picture."""

    encoder: str
    """folder of the checkpoint whose backbone sees the pictures; "" where that comes in a package"""
    engine: str
    """method that won on validation classes"""
    heads: Mapping[str, str] = field(default_factory=dict)
    """method -> folder of a checkpoint trained on the encoder's features"""
    settings: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """method -> its keywords on these features"""
    backbone: str = ""
    """the backbone that comes in a package"""
    light_ink: bool = False
    """whether it learned from light strokes on dark ground"""
    view: bool = False
    """whether features are looked at through a `engram.nn.view.View` of what is remembered"""
    temperatures: Mapping[str, dict[str, list[float]]] = field(default_factory=dict)
    """method, or "method transductive" -> pictures of each class, and what else `fitted_at` knows -> [temperature]"""
    familiarity: Mapping[str, list[float]] = field(default_factory=dict)
    """pictures of each class -> [slope, offset] of the logit that a picture is of one of the classes at all"""

    def temperatures_of(self, method: str, transductive: bool) -> dict[str, list[float]]:
        return self.temperatures.get(f"{method} transductive" if transductive else method, {})


@cache
def box() -> dict[str, Boxed]:
    """Kinds of pictures there are weights for."""
    return {name: Boxed(**entry) for name, entry in json.loads((WEIGHTS / "box.json").read_text()).items()}


def fitted_at(
    fitted: Mapping[str, Sequence[float]], pictures_per_class: float, n_way: int = 5, asked_per_class: float = 1
) -> list[float]:
    """Numbers that were fitted for some numbers of pictures, "CLASSESxPICTURES" or "CLASSESxPICTURESxASKED": between
    these interpolated over the logarithms, beyond them as at the end."""
    table = {(*map(float, key.split("x")), 1.0): values for key, values in fitted.items()}
    table = {key if len(key) > 2 else (1.0, *key): values for key, values in table.items()}
    return _between(table, (n_way, pictures_per_class, asked_per_class))


def _between(table: Mapping[tuple[float, ...], Sequence[float]], place: tuple[float, ...]) -> list[float]:
    """One axis after the other."""
    if not place:
        return list(table[next(iter(table))])
    rows: dict[float, dict[tuple[float, ...], Sequence[float]]] = {}
    for key, values in table.items():
        rows.setdefault(math.log(key[0]), {})[key[1:]] = values
    places = sorted(rows)
    columns = zip(*(_between(rows[at], place[1:]) for at in places), strict=True)
    return [float(np.interp(math.log(max(place[0], 1e-9)), places, column)) for column in columns]
