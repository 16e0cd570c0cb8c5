"""Which model a command is given, and under which name its answers are filed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_run import make_stores, train_stage_one
from toy_store import make_store

from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.bench import bench
from engram.evaluation.source import model_name, resolve_model
from engram.ledger import RunRecord, record_path
from engram.models.features import write_features


@pytest.fixture(scope="module")
def store() -> Store:
    return make_store(n_classes=5, per_class=6, noise=20.0, split="test")


def ask(model: str | Path, results: Path, store: Store, **arguments: object) -> tuple[RunRecord, Path]:
    record, _ = bench(model, results=results, store=store, progress=False, device="cpu", **arguments)  # type: ignore[arg-type]
    return record, record_path(results, record)


def test_a_floors_result_is_not_filed_under_the_recipe_it_was_asked_with(tmp_path: Path, store: Store) -> None:
    glyphs = Store(store.images, store.offsets, replace(store.info, dataset="glyphs"))
    record, path = ask("chance", tmp_path, glyphs, recipe="proto_net/glyphs_5w1s", n_sequences=2, n_query=1)
    assert record.recipe_name == "chance/glyphs_5w1s" and path.name.startswith("chance.glyphs_5w1s.")


def test_one_of_a_run_folder_and_a_method_is_named() -> None:
    assert model_name("runs/mine", None) == "runs/mine" and model_name("", "chance") == "chance"
    for model, method, told in (("run", "chance", "both 'run' and method = 'chance'"), ("", None, "neither was given")):
        with pytest.raises(EngramError, match=told):
            model_name(model, method)


def test_a_floor_keeps_nothing_of_the_recipe_it_is_asked_with_but_its_tasks() -> None:
    source = resolve_model("chance", "proto_net/glyphs_5w1s")
    assert (source.asked.name, source.recipe.name) == ("proto_net/glyphs_5w1s", "chance/glyphs_5w1s")
    assert (source.recipe.backbone, source.recipe.method_settings) == ("flatten", {})
    assert (source.recipe.test, source.chosen_on, source.trained_by) == (source.asked.test, "", "")


@pytest.mark.parametrize(
    ("model", "recipe", "sentence"),
    [
        ("chanse", None, "neither a run folder nor an untrained method 'chanse'; did you mean 'chance'"),
        ("proto_net", None, "'proto_net' is a method that must be trained first"),
        ("chance", None, "'chance' needs --recipe to say which data and tasks"),
    ],
)
def test_what_is_no_model_is_told(model: str, recipe: str | None, sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        resolve_model(model, recipe)


IMAGENET = """
[method]
name = "{method}"
[backbone]
name = "{backbone}"
weights = "imagenet"
[data]
dataset = "folder:birds"
normalisation = "{normalisation}"
[train]
iterations = 1
sequences = 1
freeze_backbone = {frozen}
"""


def of_imagenet(folder: Path, **changed: str) -> str:
    """A recipe of ImageNet's weights, as a file."""
    said = {"method": "proto_net", "backbone": "efficientnet_lite0", "normalisation": "lite", "frozen": "true"}
    (folder / "own.toml").write_text(IMAGENET.format(**{**said, **changed}))
    return str(folder / "own.toml")


def test_what_a_recipe_freezes_is_asked_as_it_is(tmp_path: Path) -> None:
    """Training says that there is nothing to train and to bench it: so it can be benched."""
    store = make_store(shape=(3, 32, 32))
    method = resolve_model("proto_net", of_imagenet(tmp_path)).build(store)
    weights = method.backbone.state_dict()["backbone.layers.0.1.weight"]
    assert not torch.equal(weights, torch.ones_like(weights)), "not as it was drawn"
    with pytest.raises(EngramError, match="'proto_net' is a method that must be trained first"):
        resolve_model("proto_net", of_imagenet(tmp_path, frozen="false"))
    with pytest.raises(EngramError, match="'egnn' has [0-9]+ weights that must be trained first"):
        resolve_model("egnn", of_imagenet(tmp_path, method="egnn")).build(store)
    with pytest.raises(EngramError, match="normalisation = 'unit' but the weights 'imagenet' learned from 'lite'"):
        resolve_model("proto_net", of_imagenet(tmp_path, normalisation="unit")).build(store)
    with pytest.raises(EngramError, match="those of efficientnet_lite0 and efficientnet_lite1, not of conv4"):
        resolve_model("proto_net", of_imagenet(tmp_path, backbone="conv4")).build(store)


def test_a_model_answers_from_the_features_its_own_encoder_wrote_and_from_no_others(tmp_path: Path) -> None:
    run, other = (train_stage_one(tmp_path / name) for name in ("run", "other"))
    images = make_stores()["val"]
    made = write_features(
        run, tmp_path / "features", splits=("val",), stores={"val": images}, device="cpu", quiet=True, dtype="float32"
    )["val"]
    how = {"results": tmp_path, "progress": False, "device": "cpu", "split": "val", "n_sequences": 10}
    first, second = (bench(run, store=store, **how)[1][0].outcomes.probabilities for store in (images, made))  # type: ignore[arg-type]
    assert np.abs(first - second).max() < 1e-4 and first.std() > 0.05
    with pytest.raises(EngramError, match="was trained on images of 1x10x10 but those of toy are 5"):
        bench(other, store=made, **how)  # type: ignore[arg-type]
