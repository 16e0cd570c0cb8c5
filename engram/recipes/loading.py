"""Recipes by name from the files of the box, or from a TOML file of one's own; and one as whole TOML, each value
with the place that states it.

A method's file has a [base], and named variants that state only what they change. A variant starts from the base, or
with ``from`` from another variant. Tables merge key by key, lists are replaced whole, and ``without`` takes keys away.
A description stands for its own variant alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engram import spellings
from engram.errors import EngramError, nearest
from engram.files import read_toml
from engram.recipes.schema import Recipe, recipe_from_dict

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


RECIPES_FOLDER = Path(__file__).parent


def load_recipe(name_or_path: str) -> Recipe:
    """A recipe by its short name (``cml_bgnn/mini_5w1s``) or by the path of a TOML file.

    Such a file is whole, or starts with ``from = "cml_bgnn/mini_5w1s"`` and states what it changes.
    """
    name, where, layers = layers_of(name_or_path)
    return recipe_from_dict(merge(layers, where).raw, name, where)


def layers_of(name_or_path: str) -> tuple[str, str, list[Layer]]:
    """Name of a recipe, what an error calls it, and its layers, the first one first."""
    path = Path(name_or_path)
    if path.suffix != ".toml":
        name = spellings.name_today(name_or_path)
        method, _, variant = name.partition("/")
        if variant not in _variants(method):
            raise EngramError(f"there is no recipe '{name_or_path}'{nearest(name_or_path, recipe_names())}")
        file = RECIPES_FOLDER / f"{method}.toml"
        return name, f"{file.name} [variant.{variant}]", chain_of(_of_the_box(file), variant, file.name)
    raw = read_toml(path, "recipe")
    if "variant" in raw:
        example = f"{path.stem}/{next(iter(raw['variant']), 'mini_5w1s')}"
        raise EngramError(f"{path} has all recipes of a method; name one of the box, such as {example}")
    layers = [Layer(path.name, raw)]
    if "from" in raw:
        if not isinstance(raw["from"], str) or raw["from"].endswith(".toml"):
            raise EngramError(f"{path}: from = {raw['from']!r} does not fit; it takes a recipe of the box by its name")
        layers = [*layers_of(raw["from"])[2], *layers]
    return path.stem, path.name, layers


def recipe_names() -> list[str]:
    methods = sorted(path.stem for path in RECIPES_FOLDER.glob("*.toml"))
    return sorted(f"{method}/{variant}" for method in methods for variant in _variants(method))


def maker_of(weights: str) -> str:
    """The recipe of the box that `engram train` keeps in a run folder of this name; "" where there is none."""
    method, _, variant = Path(weights).name.partition(".")
    return f"{method}/{variant}" if variant in _variants(method) else ""


def _variants(method: str) -> list[str]:
    file = RECIPES_FOLDER / f"{method}.toml"
    return list(variants_of(_of_the_box(file), file.name)) if method and file.exists() else []


@cache
def _of_the_box(file: Path) -> dict[str, Any]:
    """Read once: the box does not change while a program runs."""
    return read_toml(file, "recipe")


COMMENTS_FROM = 40
"""column"""


def recipe_text(name_or_path: str) -> str:
    """TOML that can be saved and trained as it is; behind each value its variant, ``base``, or ``default``."""
    name, where, layers = layers_of(name_or_path)
    merged = merge(layers, where)
    recipe = recipe_from_dict(merged.raw, name, where)
    lines = [f"# {name}: {' < '.join(layer.name for layer in layers)}, digest {recipe.digest}"]
    lines += [f"description = {_value(recipe.description)}"]
    for table, settings in recipe.tables().items():
        lines += ["", f"[{table}]"] if settings else []
        for key, value in settings.items():
            text = f"{key} = {_value(value)}"
            lines.append(f"{text:<{COMMENTS_FROM}}  # {merged.origins.get(f'{table}.{key}', 'default')}")
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A value as TOML writes it; its texts are those of JSON."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)
