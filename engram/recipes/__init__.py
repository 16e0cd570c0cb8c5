"""Settings as data: one TOML file for each method and setting, whole and readable alone."""

from engram.recipes.checks import check_recipe
from engram.recipes.schema import DataSettings, PaperRow, Recipe, TestSettings, TrainSettings, load_recipe, recipe_names

__all__ = [
    "DataSettings",
    "PaperRow",
    "Recipe",
    "TestSettings",
    "TrainSettings",
    "check_recipe",
    "load_recipe",
    "recipe_names",
]
