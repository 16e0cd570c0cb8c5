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

from engram.places import WEIGHTS


@dataclass(frozen=True)
class Boxed:
    """One kind of picture."""

    encoder: str
    """folder of the checkpoint whose backbone sees the pictures; "" for that of `imagenet`"""
    engine: str
    """method that won on validation classes"""
    heads: Mapping[str, str] = field(default_factory=dict)
    """method -> folder of a checkpoint trained on the encoder's features"""
    settings: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """method -> its keywords on these features"""
    light_ink: bool = False
    """whether it learned from light strokes on dark ground"""
    view: bool = False
    """whether features are looked at through a `engram.nn.view.View` of what is remembered"""
    temperatures: Mapping[str, dict[str, list[float]]] = field(default_factory=dict)
    """method, or "method transductive" -> pictures of each class -> [temperature]"""
    familiarity: Mapping[str, list[float]] = field(default_factory=dict)
    """pictures of each class -> [slope, offset] of the logit that a picture is of one of the classes at all"""


@cache
def box() -> dict[str, Boxed]:
    """Kinds of pictures there are weights for."""
    return {name: Boxed(**entry) for name, entry in json.loads((WEIGHTS / "box.json").read_text()).items()}


def fitted_at(fitted: Mapping[str, Sequence[float]], pictures_per_class: float, n_way: int = 5) -> list[float]:
    """Numbers that were fitted for some numbers of pictures, or "CLASSESxPICTURES": between these interpolated over the
    logarithms, beyond them as at the end."""
    by_ways: dict[float, dict[float, Sequence[float]]] = {}
    for key, values in fitted.items():
        ways, _, shots = key.rpartition("x")
        by_ways.setdefault(float(ways or 1), {})[float(shots)] = values
    rows = {ways: _between(table, pictures_per_class) for ways, table in by_ways.items()}
    return _between(rows, n_way)


def _between(table: Mapping[float, Sequence[float]], place: float) -> list[float]:
    known = sorted((math.log(key), tuple(values)) for key, values in table.items())
    places = [key for key, _ in known]
    here = math.log(max(place, 1e-9))
    return [float(np.interp(here, places, column)) for column in zip(*(values for _, values in known), strict=True)]
