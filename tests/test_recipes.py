"""Every recipe in the box is whole, fits its method, and its numbers are those of the paper's tables."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from engram.methods import METHODS
from engram.models.build import build_method
from engram.protocol import Protocol
from engram.recipes import Recipe, load_recipe, maker_of, recipe_names
from engram.recipes.protocols import protocols_of, validation_protocol
from engram.recipes.schema import digest_of, structure
from engram.studies.claims import published_figures

RUNS = Path(__file__).parents[1] / "results" / "runs"


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_loads_and_its_method_settings_fit(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name and recipe.name.split("/")[0] == recipe.method and recipe.description
    structure(recipe.method_settings, METHODS[recipe.method].Config, name)
    assert all(isinstance(p, Protocol) for p in protocols_of(recipe))
    if "class_order" in name:
        assert recipe.data.slot_order == recipe.test.slot_order == "class-order"
    else:
        assert recipe.data.slot_order == recipe.test.slot_order == "shuffled"


@pytest.mark.parametrize("name", [n for n in recipe_names() if "glyphs" in n])
def test_a_glyph_recipe_builds(name: str) -> None:
    method = build_method(load_recipe(name), (1, 28, 28), torch.device("cpu"))
    assert sum(p.numel() for p in method.parameters()) > 10_000


@cache
def recorded() -> set[str]:
    """Recipes whose runs are in the ledger, by name, or by digest as another recipe's weights asked in their way."""
    files = [path for path in RUNS.glob("*.json") if path.name.count(".") == 3]
    settings = [json.loads(path.read_text())["recipe"] for path in files]
    digests = {digest_of(s, without_seed=True) for s in settings}
    names = {"/".join(path.name.split(".")[:2]) for path in files}
    return names | {n for n in recipe_names() if digest_of(load_recipe(n).to_dict(), without_seed=True) in digests}


def queries_go_together(recipe: Recipe) -> bool:
    """One query per class in training, or answers that depend on the number asked at once: validated as they are asked.

    1,000 tasks with one query per class leave as much to chance as 200 with fifteen.
    """
    settings = recipe.method_settings
    normed = {settings.get(key) for key in ("query_statistics", "batch_norm", "statistics")}
    return bool(normed & {"queries", "task"}) or recipe.data.n_query == 1


def test_weights_are_chosen_on_200_tasks_of_15_queries_per_class_or_as_good() -> None:
    """Of photographs; recipes with runs from before stay as they were run, and say so by their records."""
    known, poor = recorded(), []
    for name in recipe_names():
        recipe = load_recipe(name)
        if recipe.data.dataset not in ("miniimagenet", "tieredimagenet") or name in known:
            continue
        asked = validation_protocol(recipe, "running")
        tasks = asked.n_sequences * asked.stream_length
        if not (tasks >= 200 and asked.n_query >= 15) and not (tasks >= 1000 and queries_go_together(recipe)):
            poor.append(f"{name}: {tasks} tasks, {asked.n_query} queries per class")
    assert not poor and len(known) > 100


@pytest.mark.parametrize("name", [n for n in recipe_names() if n.startswith(("ctm/mini", "ctm/tiered"))])
def test_ctm_is_looked_at_early_and_often(name: str) -> None:
    """Its best weights came before the first look after 1,500 steps."""
    assert load_recipe(name).train.validate_every <= 500 or name in recorded()


def test_the_papers_batches_are_80_and_64_tasks() -> None:
    for name in recipe_names():
        recipe = load_recipe(name)
        if recipe.method == "cml_bgnn" and name in published_figures():
            tasks = recipe.train.sequences * recipe.data.stream_length
            assert tasks == {1: 80, 5: 64}[recipe.data.n_shot], name


def test_snail_from_its_own_stage_one_is_the_short_run_but_ten_times_as_long_and_at_the_papers_rate() -> None:
    whole, short = (load_recipe(f"snail/mini_5w1s_pretrained{end}") for end in ("", "_short"))
    assert maker_of(whole.backbone_weights) == "stage_one/mini_resnet_snail"
    maker = load_recipe("stage_one/mini_resnet_snail")
    assert (whole.backbone, whole.data.normalisation) == (maker.backbone, maker.data.normalisation)
    train = replace(short.train, iterations=20_000, learning_rate=1e-4, validate_every=1000)
    assert replace(whole, name=short.name, description=short.description, test=short.test, train=short.train) == short
    assert whole.train == train
