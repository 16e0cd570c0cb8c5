"""Recipes by name from the files of the box, or from a TOML file of one's own; and one as whole TOML, each value
with the place that states it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from engram import spellings
from engram.errors import EngramError, nearest
from engram.files import read_toml
from engram.recipes.schema import Recipe, recipe_from_dict
from engram.recipes.variants import Layer, chain_of, merge, variants_of

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
