"""Old spellings of recipes: what was written before a method had its name is still found, read and counted.

Content memory was ``method = "cml_bgnn"`` with ``history = "content"`` and a list ``reading`` of numbers without names.
Recipes and records are read into today's spelling; digests go by the first one, so that they never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engram.errors import EngramError

FIRST, TODAY = "cml_bgnn", "content_memory"
READING: dict[str, float] = {
    "sharpness": 10.0,
    "query": 0.5,
    "past_query": 0.1,
    "past_picture": 0.05,
    "refusal": 0.3,
    "crowd": 0.0,
    "node": 0.0,
}
"""the settings that were numbers of ``reading``, in its order, with their defaults"""
WITHOUT_EFFECT = {"edges", "node_net", "gate", "shared_gate", "next_layer", "layer_loss", "dropout"}
"""keywords of CML-BGNN that a content memory took and never looked at"""
RECIPES = {
    "cml_bgnn/glyphs_quick_content": "content_memory/glyphs_quick",
    "cml_bgnn/glyphs_5w5s_content": "content_memory/glyphs_5w5s",
    "cml_bgnn/mini_5w5s_content": "content_memory/mini_5w5s",
    "cml_bgnn/mini_5w1s_content_named": "content_memory/mini_5w1s_named",
    "cml_bgnn/mini_5w1s_content_named_inductive": "content_memory/mini_5w1s_named_inductive",
    "cml_bgnn/mini_5w1s_content_named_resnet12_wide": "content_memory/mini_5w1s_named_resnet12_wide",
    "cml_bgnn/mini_5w1s_content_anonymous": "content_memory/mini_5w1s_anonymous",
    "cml_bgnn/mini_5w1s_content_anonymous_resnet12_wide": "content_memory/mini_5w1s_anonymous_resnet12_wide",
    "cml_bgnn/mini_5w1s_content_attention": "content_memory/mini_5w1s_attention",
}
"""first name -> today's; either finds the recipe and its records, which keep the one they were written with"""


def today(method: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and [method] table in today's spelling, also where a keyword of the first is set over a table of today."""
    by_content = settings.get("history") == "content"
    if not (method == FIRST and by_content) and not (method == TODAY and (by_content or "reading" in settings)):
        return method, dict(settings)
    reading = settings.get("reading", ())
    if not isinstance(reading, list | tuple) or len(reading) > len(READING):
        raise EngramError(
            f"[method] reading = {reading!r} but it takes a list of at most {len(READING)} numbers, which have names "
            f"now: {', '.join(READING)}"
        )
    whole = READING if "reading" in settings else ()  # a list takes the place of all that it could have said
    kept = {key: value for key, value in settings.items() if key not in ("history", "reading", *whole)}
    return TODAY, {**kept, **dict(zip(READING, reading, strict=False))}


def first(method: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The inverse of `today`: ``reading`` is as long as the last of its numbers that has a name in the table."""
    if method != TODAY:
        return method, dict(settings)
    kept = {key: value for key, value in settings.items() if key not in READING}
    named = [place for place, key in enumerate(READING) if key in settings]
    numbers = [settings.get(key, default) for key, default in READING.items()][: max(named, default=-1) + 1]
    return FIRST, {**kept, "history": "content", **({"reading": numbers} if numbers else {})}


def respell(recipe: Any) -> None:
    """A `Recipe` that is being made, in today's spelling, without what never had an effect."""
    method, settings = today(recipe.method, recipe.method_settings)
    if settings != recipe.method_settings:
        object.__setattr__(recipe, "method", method)
        kept = {key: value for key, value in settings.items() if key not in WITHOUT_EFFECT}
        object.__setattr__(recipe, "method_settings", kept)


def saved_today(raw: dict[str, Any]) -> dict[str, Any]:
    """A record, or the state of a run, with its ``method`` and ``recipe`` in today's spelling."""
    if not isinstance(raw.get("method"), str) or not isinstance(raw.get("recipe"), dict):
        raise ValueError("it names no method, or has no recipe")
    settings = raw["recipe"].get("method_settings") or {}
    if not isinstance(settings, dict):
        raise ValueError("the method_settings of its recipe are no table")
    method, settings = today(raw["method"], settings)
    recipe = {**raw["recipe"], "method": method, "method_settings": settings}
    return raw if method == raw["method"] else {**raw, "method": method, "recipe": recipe}


def recipe_first(saved: Mapping[str, Any]) -> dict[str, Any]:
    """What `Recipe.to_dict` gave, in its first spelling: what a digest is of."""
    if saved.get("method") != TODAY:
        return dict(saved)
    method, settings = first(TODAY, saved["method_settings"])
    return {**saved, "method": method, "method_settings": settings}


def name_today(recipe: str) -> str:
    """The name a recipe has today; that of a recipe with one name is itself."""
    return RECIPES.get(recipe, recipe)


def filed_under(method: str, recipe_name: str) -> str:
    """Whose name run folders and record files bear: those of a recipe under its first name keep theirs."""
    return FIRST if method == TODAY and recipe_name in RECIPES else method


def engine_today(engine: str | None, known: tuple[str, ...]) -> str | None:
    """A classifier's engine: the first name means content memory where weights of that are ``known``."""
    return TODAY if engine == FIRST and TODAY in known and FIRST not in known else engine
