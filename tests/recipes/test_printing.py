"""A recipe printed whole says where each value comes from, and is the same recipe when it is saved."""

from pathlib import Path

import pytest

from engram.recipes import load_recipe, recipe_names, recipe_text


def test_each_value_says_where_it_comes_from() -> None:
    lines = [line.split() for line in recipe_text("cml_bgnn/mini_5w1s_10k").splitlines()]
    for line in (
        ["iterations", "=", "10000", "#", "mini_5w1s_10k"],
        ["sequences", "=", "10", "#", "base"],
        ["seed", "=", "111", "#", "default"],
        ["milestones", "=", "[]", "#", "default"],
    ):
        assert line in lines
    assert recipe_text("cml_bgnn/mini_5w1s_10k").startswith(
        "# cml_bgnn/mini_5w1s_10k: base < mini_5w1s < mini_5w1s_10k, digest "
    )


@pytest.mark.parametrize("name", recipe_names()[::7])
def test_what_is_printed_is_the_recipe(name: str, tmp_path: Path) -> None:
    (tmp_path / "saved.toml").write_text(recipe_text(name))
    saved, recipe = load_recipe(str(tmp_path / "saved.toml")), load_recipe(name)
    assert saved.digest == recipe.digest
    assert {**saved.to_dict(), "name": name} == recipe.to_dict()
    assert "# saved.toml" in recipe_text(str(tmp_path / "saved.toml"))
