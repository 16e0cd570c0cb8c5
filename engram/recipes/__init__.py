"""Settings as data: one TOML file for each method, a base and named variants that state only what they change."""

from engram.recipes.checks import check_recipe
from engram.recipes.loading import load_recipe, maker_of, recipe_names, recipe_text
from engram.recipes.schema import DataSettings, Recipe, TestSettings, TrainSettings

__all__ = [
    "DataSettings", "Recipe", "TestSettings", "TrainSettings", "check_recipe", "load_recipe", "maker_of",
    "recipe_names", "recipe_text",
]  # fmt: skip
