"""A head trained on frozen features, put back on its encoder: the same answers, from images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_run import STAGE_ONE, changed, make_stores, train_stage_one

from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.bench import bench
from engram.evaluation.evaluate import evaluate
from engram.models.checkpoint import load, load_method
from engram.models.features import open_stores, write_features
from engram.models.packing import attach
from engram.protocol import Protocol
from engram.recipes.schema import DataSettings, Recipe, TestSettings
from engram.training.experiment import train

CPU = torch.device("cpu")
HEAD = changed(
    STAGE_ONE,
    {"iterations": 6, "learning_rate": 0.01, "validate_every": 3},
    name="content_memory/toy",
    method="content_memory",
    method_settings={"n_layers": 1, "width": 4, "capacity": 60},
    backbone="conv4",
    data=replace(STAGE_ONE.data, class_batch=0, stream_length=3, augmentation="none", names="named"),
    test=TestSettings(n_way=3, n_query=(2,), stream_length=4, n_sequences=6, names="named"),
)


def stores() -> dict[str, Store]:
    made = make_stores()
    return {**made, "test": Store(made["val"].images, made["val"].offsets, replace(made["val"].info, split="test"))}


def train_head(folder: Path, features: Path, recipe: Recipe = HEAD) -> Path:
    train(
        recipe, features=features, out=folder, results=folder.parent / "results", device="cpu", progress=False,
        test=False,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_stage_one(tmp_path_factory.mktemp("encoder") / "run")


@pytest.fixture(scope="module")
def features(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    write_features(encoder, folder, stores=stores(), device="cpu", quiet=True, dtype="float32")
    return folder


@pytest.fixture(scope="module")
def head(features: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_head(tmp_path_factory.mktemp("head") / "run", features)


@pytest.mark.parametrize(("half", "tolerance"), [(True, 2e-2), (False, 1e-4)])
def test_one_checkpoint_answers_from_images_as_the_head_does_from_features(
    tmp_path: Path, encoder: Path, features: Path, head: Path, half: bool, tolerance: float
) -> None:
    attach(head, encoder, tmp_path / "whole", half=half)
    whole = load(tmp_path / "whole")
    dtypes = {value.dtype for value in whole.tensors("weights").values() if value.is_floating_point()}
    assert dtypes == {torch.float16 if half else torch.float32}
    settings = {"results": tmp_path / "results", "device": "cpu", "progress": False}
    _, [by_images] = bench(tmp_path / "whole", store=stores()["test"], **settings)  # type: ignore[arg-type]
    _, [by_features] = bench(head, features=features, **settings)  # type: ignore[arg-type]
    assert by_images.protocol.names == "named" and by_images.protocol.stream_length == 4
    assert by_images.tasks_digest == by_features.tasks_digest
    first, second = by_images.outcomes.probabilities, by_features.outcomes.probabilities
    assert np.abs(first - second).max() < tolerance
    assert first.std() > 0.05  # not all the same by chance of saying nothing
    if half:
        assert np.abs(first - second).max() > 0


def test_what_is_kept_of_whom(tmp_path: Path, encoder: Path, head: Path) -> None:
    attach(head, encoder, tmp_path / "whole")
    whole, top, bottom = load(tmp_path / "whole"), load(head), load(encoder)
    assert whole.state.image_shape == bottom.state.image_shape == (1, 10, 10)
    assert whole.recipe.backbone == "toy_run:Small" and whole.recipe.method_settings == top.recipe.method_settings
    assert whole.state.run_id == top.state.run_id and whole.state.recipe_digest == whole.recipe.digest
    method = load_method(whole, CPU)
    for name, value in method.state_dict().items():
        source = bottom if name.startswith("backbone.") else top
        assert torch.allclose(value, source.tensors("weights")[name], rtol=1e-3, atol=1e-4), name
    assert method.graph.started


def test_its_encoder_makes_the_same_features_again(tmp_path: Path, encoder: Path, features: Path, head: Path) -> None:
    attach(head, encoder, tmp_path / "whole", half=False)
    again = write_features(tmp_path / "whole", tmp_path / "again", stores=stores(), device="cpu", quiet=True)
    for split, store in open_stores(DataSettings("toy"), ("train", "val", "test"), features=features).items():
        assert torch.allclose(store.images, again[split].images.float(), rtol=1e-2, atol=1e-2)


def test_a_run_with_an_encoder_of_its_own_is_refused(tmp_path: Path, encoder: Path) -> None:
    with pytest.raises(EngramError, match=r"was trained on images of \(1, 10, 10\), not on features"):
        attach(encoder, encoder, tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


def test_another_run_of_the_same_encoder_is_refused(tmp_path: Path, encoder: Path, head: Path) -> None:
    other = train_stage_one(tmp_path / "other")
    with pytest.raises(EngramError, match=f"{head} was trained on features of .* but {other} is run .*: attach it to"):
        attach(head, other, tmp_path / "whole")
    assert not (tmp_path / "whole").exists()
    assert load(attach(head, encoder, tmp_path / "whole")).state.features == ""


def test_an_encoder_of_another_width_is_told(tmp_path: Path, head: Path) -> None:
    recipe = changed(STAGE_ONE, {"iterations": 1}, backbone="conv32", backbone_settings={"width": 2})
    images = {
        split: Store.from_arrays(np.zeros((30, 1, 28, 28), np.uint8), [5] * 6, "toy", split) for split in stores()
    }
    train(
        recipe, stores=images, out=tmp_path / "wide", results=tmp_path / "results", device="cpu", progress=False,
        test=False,
    )  # fmt: skip
    with pytest.raises(EngramError, match="does not fit the encoder of .*: .* is .* in the file but .* in the model"):
        attach(head, tmp_path / "wide", tmp_path / "whole")


def test_pixels_are_normalised_as_the_encoder_learned_them(tmp_path: Path) -> None:
    """The encoder's recipe says how pixels are normalised; the head's, which saw none, may say otherwise."""
    centred = replace(STAGE_ONE, data=replace(STAGE_ONE.data, normalisation="centred", augmentation="none"))
    assert HEAD.data.normalisation != "centred"
    images, test = stores(), Protocol("toy", n_way=3, n_query=2, stream_length=4, n_sequences=6, names="named")
    train(
        centred, stores=images, out=tmp_path / "encoder", results=tmp_path / "results", device="cpu", progress=False,
        test=False,
    )  # fmt: skip
    made = write_features(tmp_path / "encoder", tmp_path / "features", stores=images, device="cpu", quiet=True)
    train_head(tmp_path / "head", tmp_path / "features")
    attach(tmp_path / "head", tmp_path / "encoder", tmp_path / "whole", half=False)
    whole, alone = (
        evaluate(load_method(load(tmp_path / name), CPU), store, test).outcomes.probabilities
        for name, store in (("whole", images["test"]), ("head", made["test"]))
    )
    assert np.abs(whole - alone).max() < 2e-2
