"""A recipe's name says what it changes; those from before this rule are listed, each with its runs."""

import json
from pathlib import Path

import pytest
from recipe_names import changes, check_name, unsaid_changes, variant_of

from engram.errors import EngramError
from engram.recipes import load_recipe, loading, recipe_names
from engram.recipes.schema import digest_of

RUNS = Path(__file__).parents[2] / "results" / "runs"
BEFORE_THE_RULE = (
    "cml_bgnn/glyphs_quick_class_order",
    "cml_bgnn/mini_5w1s_public_class_order_short",
    "cml_bgnn/mini_5w1s_public_no_history_short",
    "cml_bgnn/mini_5w5s_frozen_labelled20_narrow",
    "cml_bgnn/mini_5w5s_frozen_semi20_narrow",
    "cml_bgnn/omniglot_5w1s_no_history_short",
    "covamnet/mini_5w1s_short",
    "ctm/mini_5w1s_short",
    "egnn/mini_5w1s_15q_short",
    "egnn/mini_5w1s_frozen_15q",
    "egnn/mini_5w1s_frozen_1to15q",
    "egnn/mini_5w1s_frozen_depth1",
    "egnn/mini_5w1s_frozen_depth2",
    "egnn/mini_5w1s_frozen_depth3",
    "egnn/mini_5w1s_short",
    "egnn/mini_5w5s_frozen_labelled20_narrow",
    "egnn/mini_5w5s_frozen_semi20_narrow",
    "gnn/mini_5w1s_short",
    "leo/mini_5w1s_short",
    "lwof/mini_5w1s_short",
    "lwof/mini_5w5s_short",
    "matching_net/mini_5w1s_short",
    "meta_lstm/mini_5w1s_short",
    "param_predict/mini_5w1s_short",
    "param_predict/mini_5w5s_short",
    "platipus/mini_5w1s_reference_short",
    "platipus/mini_5w1s_short",
    "proto_net/mini_5w1s_10k",
    "proto_net/mini_5w1s_conv4_short",
    "relation_net/mini_5w1s_short",
    "snail/mini_5w1s_pretrained_short",
    "snail/mini_5w1s_short",
    "tadam/mini_5w1s_pretrained_short",
    "tadam/mini_5w1s_short",
    "tpn/mini_5w1s_short",
    "versa/mini_5w1s_pretrained_short",
    "versa/mini_5w1s_short",
    "wdae/mini_5w1s_short",
)
"""their runs are recorded under these names, so they keep them; no recipe without a run may join them"""


@pytest.mark.parametrize("name", [n for n in recipe_names() if n not in BEFORE_THE_RULE])
def test_a_recipe_changes_what_its_name_says_and_nothing_else(name: str) -> None:
    check_name(name)


def test_names_from_before_the_rule_break_it_and_have_runs() -> None:
    recipes = [json.loads(path.read_text())["recipe"] for path in RUNS.glob("*.json")]
    names = {recipe["name"] for recipe in recipes}
    digests = {digest_of(recipe, without_seed=True) for recipe in recipes}
    for name in BEFORE_THE_RULE:
        with pytest.raises(EngramError, match=name):
            check_name(name)
        assert name in names or digest_of(load_recipe(name).to_dict(), without_seed=True) in digests, name


def test_changes_are_told_against_the_longest_name_a_recipe_goes_on_from() -> None:
    assert variant_of("cml_bgnn/mini_5w1s_depth1_10k") == "cml_bgnn/mini_5w1s_depth1"
    assert changes("cml_bgnn/mini_5w1s_depth1_10k") == ["train.iterations", "train.validate_every"]
    assert variant_of("cml_bgnn/mini_5w1s") == "" and changes("cml_bgnn/mini_5w1s") == []
    assert unsaid_changes("egnn/mini_5w1s_short") == ["backbone.dropout", "backbone.weights", "data.augmentation"]
    assert changes("ctm/mini_5w1s_reference") and unsaid_changes("ctm/mini_5w1s_reference") == []


@pytest.mark.parametrize(
    ("variant", "stated", "sentence"),
    [
        (
            "a_short",
            "train.learning_rate = 1.0",
            "egnn/a_short changes train.learning_rate of egnn/a, which 'short' does",
        ),
        (
            "a_10k",
            "method.width = 3\ntrain.iterations = 10",
            "changes method.width of egnn/a, which '10k' does not say",
        ),
        ("a_depth2_short", "method.n_layers = 2\ntrain.iterations = 5", ""),
        ("a_short", 'train.iterations = 5\ntrain.schedule = "cosine"\ntrain.validate_every = 2', ""),
        ("a_public", "method.width = 3\ntrain.learning_rate = 1.0", ""),
        (
            "a_public_short",
            "train.iterations = 5",
            "says how long egnn/a_public is trained, but there is no such recipe",
        ),
    ],
)
def test_a_name_that_says_too_little_is_refused(
    variant: str, stated: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = '[base]\nmethod.name = "egnn"\ndata.dataset = "glyphs"\ntrain = { iterations = 10, sequences = 2 }\n'
    (tmp_path / "egnn.toml").write_text(f"{base}[variant.a]\n[variant.{variant}]\n{stated}\n")
    monkeypatch.setattr(loading, "RECIPES_FOLDER", tmp_path)
    if not sentence:
        return check_name(f"egnn/{variant}")
    with pytest.raises(EngramError, match=sentence):
        check_name(f"egnn/{variant}")
