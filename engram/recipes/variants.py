"""A method's file of recipes: a [base], and named variants that state only what they change.

A variant starts from the base, or with ``from`` from another variant. Tables merge key by key, lists are replaced
whole, and ``without`` takes keys away. A description stands for its own variant alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engram.errors import EngramError, nearest

TABLES = ("method", "backbone", "data", "train", "test")
LONGEST_CHAIN = 4
"""variants above the base; more than that and nobody can say what a recipe is"""


@dataclass(frozen=True)
class Layer:
    """What one variant, the base or one file states."""

    name: str
    stated: Mapping[str, Any]


@dataclass(frozen=True)
class Merged:
    raw: dict[str, Any]
    """parsed TOML of a whole recipe"""
    origins: dict[str, str]
    """"train.iterations" -> the name of the layer that states it"""


def variants_of(file: Mapping[str, Any], where: str) -> Mapping[str, Mapping[str, Any]]:
    """The named variants of a method's file, checked to be tables."""
    for key in file:
        if key not in ("base", "variant"):
            raise EngramError(f"{where}: unknown key '{key}'; a method's file has [base] and [variant.NAME] alone")
    variants = file.get("variant", {})
    for name, stated in (("base", file.get("base", {})), *variants.items()):
        if not isinstance(stated, dict):
            raise EngramError(f"{where}: {name} = {stated!r} does not fit; it takes a table")
    return variants


def chain_of(file: Mapping[str, Any], variant: str, where: str) -> list[Layer]:
    """The layers of a variant, the base first."""
    variants = variants_of(file, where)
    above: list[str] = []
    while variant != "base":
        if variant in above:
            circle = " from ".join([*above[above.index(variant) :], variant])
            raise EngramError(f"{where}: variants go in a circle, {circle}; let one of them start from 'base'")
        above.append(variant)
        start = variants[variant].get("from", "base")
        if start != "base" and start not in variants:
            known = nearest(str(start), ["base", *variants])
            raise EngramError(f"{where} [variant.{variant}]: from = {start!r} is no variant of this file{known}")
        variant = start
    if len(above) > LONGEST_CHAIN:
        raise EngramError(
            f"{where} [variant.{above[0]}]: {len(above)} variants stand on the base, {' from '.join(above)}, "
            f"but at most {LONGEST_CHAIN} may; start from an earlier one"
        )
    return [Layer("base", file.get("base", {})), *(Layer(name, variants[name]) for name in reversed(above))]


def merge(layers: Sequence[Layer], where: str) -> Merged:
    """All layers as one recipe, the later ones over the earlier ones."""
    raw: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        raw.pop("description", None)
        _take_away(raw, origins, layer, where)
        for key, value in layer.stated.items():
            if key in TABLES and isinstance(value, dict) and isinstance(raw.get(key, {}), dict):
                raw[key] = {**raw.get(key, {}), **value}
                origins.update({f"{key}.{inner}": layer.name for inner in value})
            elif key not in ("from", "without"):
                raw[key] = value
    return Merged(raw, origins)


def _take_away(raw: dict[str, Any], origins: dict[str, str], layer: Layer, where: str) -> None:
    """Keys such as "backbone.dropout", or a whole table such as "backbone", that a layer goes without."""
    unwanted = layer.stated.get("without", [])
    if not isinstance(unwanted, list):
        raise EngramError(f"{where} [{layer.name}]: without = {unwanted!r} does not fit; it takes a list of keys")
    for key in unwanted:
        table, _, inner = str(key).partition(".")
        if key not in raw and inner not in raw.get(table, {}):
            raise EngramError(f"{where} [{layer.name}]: without names '{key}' but there is none{nearest(key, origins)}")
        raw[table] = {k: v for k, v in raw[table].items() if inner and k != inner}
        if not inner:
            del raw[table]
        for gone in [o for o in origins if o == key or o.startswith(f"{key}.")]:
            del origins[gone]
