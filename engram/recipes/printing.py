"""One recipe as whole TOML, each value with the place that states it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from engram.recipes.loading import layers_of
from engram.recipes.schema import Recipe, recipe_from_dict
from engram.recipes.variants import merge

COMMENTS_FROM = 40
"""column"""


def recipe_text(name_or_path: str) -> str:
    """TOML that can be saved and trained as it is; behind each value its variant, ``base``, or ``default``."""
    name, where, layers = layers_of(name_or_path)
    merged = merge(layers, where)
    recipe = recipe_from_dict(merged.raw, name, where)
    lines = [f"# {name}: {' < '.join(layer.name for layer in layers)}, digest {recipe.digest}"]
    lines += [f"description = {_value(recipe.description)}"]
    for table, settings in _tables(recipe).items():
        lines += ["", f"[{table}]"]
        for key, value in settings.items():
            text = f"{key} = {_value(value)}"
            lines.append(f"{text:<{COMMENTS_FROM}}  # {merged.origins.get(f'{table}.{key}', 'default')}")
    return "\n".join(lines) + "\n"


def _tables(recipe: Recipe) -> dict[str, dict[str, Any]]:
    saved = recipe.to_dict()
    start = {"weights": recipe.backbone_weights} if recipe.backbone_weights else {}
    tables = {
        "method": {"name": recipe.method, **recipe.method_settings},
        "backbone": {"name": recipe.backbone, **start, **recipe.backbone_settings},
        **{table: saved[table] for table in ("data", "train", "test")},
    }
    return {table: settings for table, settings in tables.items() if settings}


def _value(value: Any) -> str:
    """A value as TOML writes it; its texts are those of JSON."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)
