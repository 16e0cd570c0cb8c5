"""Recipes by name and by file: whole ones, and those that start from one of the box."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engram.errors import EngramError
from engram.recipes import Recipe, load_recipe, loading, maker_of, recipe_names, recipe_text
from engram.recipes.loading import Layer, chain_of, merge

METHOD = """
[base]
method.name = "proto_net"
data.dataset = "glyphs"
train = { iterations = 10, sequences = 2 }
[variant.plain]
[variant.other]
from = "plain"
train.iteratoins = 20
[variant.lost]
from = "plian"
"""


def test_missing_and_malformed_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="no recipe 'proto_net/glyphs_5w1'; did you mean 'proto_net/glyphs_5w1s'"):
        load_recipe("proto_net/glyphs_5w1")
    for name in ("proto_net", "proto_net/", "/", "", "absent/mini_5w1s", "../recipes/proto_net/mini_5w1s"):
        with pytest.raises(EngramError, match=f"there is no recipe '{name}'"):
            load_recipe(name)
    with pytest.raises(EngramError, match=r"absent.toml cannot be read"):
        load_recipe(str(tmp_path / "absent.toml"))
    (tmp_path / "bad.toml").write_text("a = = 1")
    with pytest.raises(EngramError, match=r"bad.toml is not valid TOML"):
        load_recipe(str(tmp_path / "bad.toml"))


def test_a_variant_with_an_unknown_key_or_base_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proto_net.toml").write_text(METHOD)
    monkeypatch.setattr(loading, "RECIPES_FOLDER", tmp_path)
    assert recipe_names() == ["proto_net/lost", "proto_net/other", "proto_net/plain"]
    assert load_recipe("proto_net/plain").train.iterations == 10
    sentence = r"proto_net.toml \[variant.other\] \[train\]: unknown key 'iteratoins'; did you mean 'iterations'"
    with pytest.raises(EngramError, match=sentence):
        load_recipe("proto_net/other")
    with pytest.raises(EngramError, match=r"\[variant.lost\]: from = 'plian' .* did you mean 'plain'"):
        load_recipe("proto_net/lost")
    with pytest.raises(EngramError, match=r"has all recipes of a method; name one of the box, such as proto_net/plain"):
        load_recipe(str(tmp_path / "proto_net.toml"))


def test_a_recipe_of_ones_own_is_named_by_its_file(tmp_path: Path) -> None:
    text = '[method]\nname = "proto_net"\n[data]\ndataset = "glyphs"\n[train]\niterations = 5\nsequences = 1\n'
    (tmp_path / "mine.toml").write_text(text)
    recipe = load_recipe(str(tmp_path / "mine.toml"))
    assert isinstance(recipe, Recipe) and recipe.name == "mine" and recipe.backbone == "conv4"


def test_a_recipe_of_ones_own_may_start_from_one_of_the_box(tmp_path: Path) -> None:
    mine, box = tmp_path / "mine.toml", load_recipe("egnn/mini_5w1s")
    mine.write_text('from = "egnn/mini_5w1s"\ndescription = "quicker"\ntrain.learning_rate = 0.01\n')
    recipe = load_recipe(str(mine))
    assert (recipe.name, recipe.description) == ("mine", "quicker")
    assert recipe.train.learning_rate == 0.01 and recipe.train.iterations == box.train.iterations
    assert (recipe.data, recipe.test, recipe.method_settings) == (box.data, box.test, box.method_settings)
    for start, sentence in (
        ('"egnn/mini"', "there is no recipe 'egnn/mini'"),
        ('"mine.toml"', "from = 'mine.toml' does not fit; it takes a recipe of the box"),
        ("3", "from = 3 does not fit"),
    ):
        mine.write_text(f"from = {start}\n")
        with pytest.raises(EngramError, match=sentence):
            load_recipe(str(mine))


def test_the_maker_of_weights_is_told_by_their_folder() -> None:
    assert maker_of("weights/stage_one.mini_conv4") == "stage_one/mini_conv4"
    assert maker_of("runs/mine") == maker_of("weights/stage_one.absent") == maker_of("") == ""


@pytest.mark.parametrize(
    "name", ["egnn/mini_5w1s", "content_memory/mini_5w1s_named", "cml_bgnn/mini_5w1s_public_quick"]
)
def test_a_recipe_of_ones_own_starts_from_any_of_the_box(tmp_path: Path, name: str) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(f'from = "{name}"\ntrain.seed = 5\n')
    found = load_recipe(str(mine))
    assert found.train.seed == 5 and found.method == load_recipe(name).method


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


FILE: dict[str, Any] = {
    "base": {"method": {"name": "egnn", "width": 96}, "backbone": {"name": "conv4", "dropout": [0.1]}},
    "variant": {
        "a": {"description": "first", "method": {"width": 32}, "test": {"n_way": 5}},
        "b": {"from": "a", "train": {"iterations": 5}, "without": ["backbone.dropout", "test"]},
    },
}


def test_tables_merge_key_by_key_and_each_value_has_its_origin() -> None:
    merged = merge(chain_of(FILE, "b", "egnn.toml"), "egnn.toml")
    assert merged.raw == {
        "method": {"name": "egnn", "width": 32},
        "backbone": {"name": "conv4"},
        "train": {"iterations": 5},
    }
    assert merged.origins == {
        "method.name": "base",
        "method.width": "a",
        "backbone.name": "base",
        "train.iterations": "b",
    }
    assert FILE["base"]["backbone"] == {"name": "conv4", "dropout": [0.1]}  # what others start from stays as it is


def test_a_description_stands_for_its_own_variant_alone() -> None:
    assert merge(chain_of(FILE, "a", ""), "").raw["description"] == "first"
    assert "description" not in merge(chain_of(FILE, "b", ""), "").raw


@pytest.mark.parametrize(
    ("variants", "sentence"),
    [
        ({"x": {"from": "aa"}}, r"egnn.toml \[variant.x\]: from = 'aa' is no variant of this file; .*base"),
        ({"x": {"from": 3}}, r"\[variant.x\]: from = 3 is no variant"),
        (
            {"x": {"from": "y"}, "y": {"from": "x"}},
            "go in a circle, x from y from x; let one of them start from 'base'",
        ),
        ({"x": {"from": "x"}}, "go in a circle, x from x"),
        ({"x": {"without": ["train.milestones"]}}, r"\[x\]: without names 'train.milestones' but there is none"),
        ({"x": {"without": "test"}}, "without = 'test' does not fit; it takes a list of keys"),
        ({"x": 5}, "x = 5 does not fit; it takes a table"),
        (
            {"x": {"from": "x1"}, **{f"x{n}": {"from": f"x{n + 1}"} for n in range(1, 4)}, "x4": {}},
            r"\[variant.x\]: 5 variants stand on the base, x from x1 from .* at most 4 may",
        ),
    ],
)
def test_bad_variants_get_one_sentence(variants: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        merge(chain_of({"base": {}, "variant": variants}, "x", "egnn.toml"), "egnn.toml")


def test_other_tables_in_a_methods_file_are_named() -> None:
    with pytest.raises(EngramError, match="egnn.toml: unknown key 'varaint'; a method's file has"):
        chain_of({"base": {}, "varaint": {}}, "base", "egnn.toml")


def test_later_layers_replace_lists_whole() -> None:
    layers = [Layer("base", {"test": {"n_query": [1, 15]}}), Layer("a", {"test": {"n_query": [15]}})]
    assert merge(layers, "").raw == {"test": {"n_query": [15]}}
