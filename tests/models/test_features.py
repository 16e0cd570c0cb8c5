"""Frozen features: what the backbone sees, as a store that every method trains and is measured on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_run import RECIPE, STAGE_ONE, changed, go, make_stores, train_stage_one

from engram.data.store import Store, verify
from engram.errors import EngramError
from engram.evaluation.bench import bench
from engram.models import features as features_module
from engram.models.checkpoint import load, load_method
from engram.models.features import extract_features, familiarity, looked, open_stores, write_features
from engram.recipes.schema import DataSettings, TestSettings
from engram.report.rows import trained_part
from engram.training.experiment import train

CPU = torch.device("cpu")


def stores() -> dict[str, Store]:
    made = make_stores()
    test = made["val"]
    return {
        **made,
        "test": Store(test.images, test.offsets, replace(test.info, split="test", class_names=tuple("abcdef"))),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_stage_one(tmp_path_factory.mktemp("runs") / "stage_one")


@pytest.fixture(scope="module")
def features(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    write_features(run, folder, stores=stores(), device="cpu", quiet=True)
    return folder


def test_features_are_those_of_the_backbone_in_evaluation_mode(run: Path) -> None:
    store, method = stores()["train"], load_method(load(run), CPU)
    with torch.no_grad():
        expected = torch.cat([method.backbone(image[None]) for image in store.images]).numpy()
    method.train()
    found = extract_features(method, store, batch=7)
    assert method.training and found.dtype == np.float16 and found.shape == (30, 5)
    assert np.allclose(found, expected, rtol=2e-3, atol=1e-3)
    assert np.allclose(extract_features(run, store, "cpu", dtype="float32"), expected, rtol=1e-4, atol=1e-5)
    assert np.array_equal(extract_features(load(run), store, batch=30), found)


def test_a_cpu_keeps_its_memory_while_it_encodes(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []

    @contextmanager
    def noted() -> Iterator[None]:
        kept.append(True)
        yield
        kept.append(False)

    def seen(*given: Any, **how: Any) -> np.ndarray:
        assert kept == [True]
        return extract_features(*given, **how)

    monkeypatch.setattr(features_module, "kept_memory", noted)
    monkeypatch.setattr(features_module, "extract_features", seen)
    write_features(run, tmp_path, stores=stores(), device="cpu", quiet=True)
    assert kept == [True, False]


def test_written_stores_are_like_any_other(run: Path, features: Path) -> None:
    for split, original in stores().items():
        store = Store.open(features / split)
        assert verify(store) and store.image_shape == (5,) and store.images.dtype == torch.float16
        assert (store.info.dataset, store.info.split) == ("toy", split)
        assert store.info.class_names == original.info.class_names and np.array_equal(store.offsets, original.offsets)
        assert load(run).state.run_id in store.info.source and original.digest[:16] in store.info.source
        assert np.array_equal(store.images.numpy(), extract_features(run, original))
    assert json.loads((features / "test" / "store.json").read_text())["class_names"] == list("abcdef")


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ({"method": "proto_net", "backbone": "toy_run:Perceptron", "method_settings": {}}, 0.6),
        ({"method": "stage_one", "backbone": "conv4", "method_settings": {"n_base_classes": 6}}, 0.6),
    ],
)
def test_methods_train_and_are_measured_on_features(
    tmp_path: Path, features: Path, settings: dict[str, Any], least: float
) -> None:
    test = TestSettings(n_way=3, n_sequences=40)
    recipe = changed(STAGE_ONE, {"iterations": 20, "learning_rate": 0.01, "validate_every": 20}, test=test, **settings)
    result = train(
        recipe, features=features, out=tmp_path / "run", results=tmp_path / "results", device="cpu", progress=False
    )
    assert result.results[0].metrics["accuracy"] > least
    assert "features of toy_run:Small" in result.record.training["features"]
    record, again = bench(
        tmp_path / "run", features=features, results=tmp_path / "results", device="cpu", progress=False
    )
    assert again[0].metrics["accuracy"] == result.results[0].metrics["accuracy"]
    assert again[0].tasks_digest == result.results[0].tasks_digest
    assert load(tmp_path / "run").state.features == Store.open(features / "train").maker != ""
    assert record.training["features"] == Store.open(features / "test").info.source


def test_what_does_not_fit_is_told(tmp_path: Path, run: Path) -> None:
    with pytest.raises(EngramError, match=f"there are no features of val in {tmp_path}: write them"):
        write_features(run, tmp_path, splits=("train",), stores=stores(), device="cpu", quiet=True)
        open_stores(DataSettings("toy"), ("train", "val"), features=tmp_path)
    narrow = {"test": Store.from_arrays(torch.zeros(12, 1, 8, 8, dtype=torch.uint8), [6, 6], "toy", "test")}
    with pytest.raises(EngramError, match=r"was trained on images of 1x10x10 but those of toy test are 1x8x8"):
        write_features(run, tmp_path / "other", splits=("test",), stores=narrow, device="cpu", quiet=True)
    assert not (tmp_path / "other").exists()


def test_features_of_another_split_or_encoder_are_refused(tmp_path: Path, features: Path) -> None:
    shutil.copytree(features, tmp_path / "moved")
    shutil.copytree(features / "train", tmp_path / "moved" / "val", dirs_exist_ok=True)
    with pytest.raises(EngramError, match="moved/val holds features of train, not of val: write them again"):
        open_stores(DataSettings("toy"), ("train", "val"), features=tmp_path / "moved")
    start = changed(backbone="conv4", backbone_weights="runs/stage_one.mini_conv4")
    told = (
        r"builds on conv4 \(runs/stage_one.mini_conv4\) but these are features of toy_run:Small: .* --backbone toy_run"
    )
    with pytest.raises(EngramError, match=told):
        train(
            start, features=features, out=tmp_path / "run", results=tmp_path / "results", device="cpu", progress=False
        )
    assert not (tmp_path / "run").exists()


def test_splits_of_two_encoders_are_refused(tmp_path: Path, features: Path) -> None:
    mixed = tmp_path / "mixed"
    shutil.copytree(features, mixed)
    described = json.loads((mixed / "test" / "store.json").read_text())
    described["source"] = described["source"].replace(" by ", " by another/recipe, run 1, not ")
    (mixed / "test" / "store.json").write_text(json.dumps(described))
    with pytest.raises(EngramError, match="write all splits with one encoder"):
        open_stores(DataSettings("toy"), ("train", "val", "test"), features=mixed)
    assert set(open_stores(DataSettings("toy"), ("train", "val"), features=mixed)) == {"train", "val"}


def test_a_head_is_not_asked_on_features_of_another_run(tmp_path: Path, features: Path) -> None:
    recipe = changed(STAGE_ONE, {"iterations": 1}, test=TestSettings(n_way=3, n_sequences=4), backbone="conv4")
    said = {"results": tmp_path / "results", "device": "cpu", "progress": False}
    train(recipe, features=features, out=tmp_path / "run", test=False, **said)
    other = train_stage_one(tmp_path / "other")
    write_features(other, tmp_path / "features", stores=stores(), device="cpu", quiet=True)
    with pytest.raises(EngramError, match=r"run was trained on features of .* but these are features of .*, run "):
        bench(tmp_path / "run", features=tmp_path / "features", **said)


def test_features_beyond_half_precision_are_refused(run: Path) -> None:
    method = load_method(load(run), CPU)
    with torch.no_grad():
        method.backbone.backbone.layers[-1].bias.fill_(1e6)
    with pytest.raises(EngramError, match="features of toy train are not finite in float16: use float32"):
        extract_features(method, stores()["train"])
    assert extract_features(method, stores()["train"], dtype="float32").min() > 1e5


def test_features_of_picture_and_mirror_image_say_so_wherever_they_go(
    tmp_path: Path, run: Path, features: Path
) -> None:
    mirrored = write_features(run, tmp_path / "both", stores=stores(), device="cpu", quiet=True, views=2)
    method, images = load_method(load(run), CPU).eval(), stores()["val"].images
    with torch.no_grad():
        expected = (method.backbone(images) + method.backbone(images.flip(-1))) / 2
    assert torch.allclose(mirrored["val"].images.float(), expected, atol=2e-3)
    assert mirrored["test"].maker == Store.open(features / "test").maker + ", picture and mirror averaged"
    assert (mirrored["test"].views, Store.open(features / "test").views) == (2, 1)
    test = TestSettings(n_way=3, n_sequences=4)
    recipe, said = changed(STAGE_ONE, {"iterations": 1}, test=test, backbone="conv4"), {"results": tmp_path / "results"}
    said |= {"device": "cpu", "progress": False}
    record = train(recipe, features=tmp_path / "both", out=tmp_path / "run", **said).record
    assert record.evaluations[0].protocol["views"] == 2 and "mirror averaged, from" in record.training["features"]
    asked, _ = bench(tmp_path / "run", features=tmp_path / "both", **said)
    assert asked.evaluations[0].protocol == record.evaluations[0].protocol
    with pytest.raises(EngramError, match=r"was trained on features of .* mirror averaged but these are features of"):
        bench(tmp_path / "run", features=features, **said)


def test_features_of_the_middle_say_so_and_are_asked_as_such(tmp_path: Path, run: Path, features: Path) -> None:
    said = {"device": "cpu", "quiet": True}
    side = stores()["test"].image_shape[1]
    window = f"{side - 4}:{side}"
    middle = write_features(run, tmp_path / "middle", stores=stores(), window=window, views=2, **said)["test"]
    plain = Store.open(features / "test")
    assert (middle.window, middle.views, middle.encoder) == (window, 2, plain.maker)
    assert (plain.window, plain.encoder) == ("", plain.maker)
    method, images = load_method(load(run), CPU).eval(), stores()["test"].images
    with torch.no_grad():
        expected = looked(method.backbone, stores()["test"].image_shape, 2, window)(images)
    assert torch.allclose(middle.images.float(), expected, atol=2e-3)
    asked = {"features": tmp_path / "middle", "results": tmp_path / "results", "device": "cpu", "progress": False}
    assert bench(run, **asked)[0].evaluations[0].protocol["window"] == window


def test_training_images_are_written_in_views_of_their_own(tmp_path: Path) -> None:
    go(tmp_path / "run", changed(STAGE_ONE, {"iterations": 1}))
    said = {"stores": stores(), "device": "cpu", "quiet": True}
    plain, three, again = (
        write_features(tmp_path / "run", tmp_path / f"{place}", augmented=copies, **said)
        for place, copies in enumerate((None, 3, 3))
    )
    train_split, original = three["train"], stores()["train"]
    assert verify(train_split) and train_split.digest == again["train"].digest  # from a seed
    assert np.array_equal(train_split.class_sizes, 3 * original.class_sizes)
    assert train_split.info.group_size == 3 and np.array_equal(train_split.group_counts, original.group_counts)
    assert len(train_split.images.unique(dim=0)) > len(original.images)  # no two views alike
    views = train_split.images.float().unflatten(0, (-1, 3)).mean(1)
    nearest = torch.cdist(views, plain["train"].images.float()).argmin(1)
    assert (nearest == torch.arange(len(views))).float().mean() > 5 / len(views)  # of the image they stand for
    for split in ("val", "test"):
        assert three[split].digest == plain[split].digest and three[split].info.source == plain[split].info.source
    assert train_split.maker == plain["train"].maker == three["test"].maker
    known = 100 * load(tmp_path / "run").state.curves["train_accuracy"][-1]
    said_of_it = "each image in 3 views under augmentation (standard), images its encoder was trained on"
    said_of_it += f" ({known:.1f} % right then)"
    assert trained_part({"features": train_split.info.source}) == said_of_it
    assert set(open_stores(DataSettings("toy"), ("train", "test"), features=tmp_path / "1")) == {"train", "test"}


def test_a_head_on_features_of_images_its_encoder_has_learned_from_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go(tmp_path / "run", changed(STAGE_ONE, {"iterations": 1}))
    told = {"stores": stores(), "device": "cpu", "quiet": True}
    learned_from = write_features(tmp_path / "run", tmp_path / "features", **told)
    head = changed(STAGE_ONE, {"iterations": 1}, backbone="flatten")
    assert go(tmp_path / "head", head, stores=learned_from).status == "finished"
    sentence = "these are features of images its encoder was trained on ("
    assert capsys.readouterr().err.count(sentence) == 1
    assert familiarity(learned_from["train"]).startswith(sentence)
    assert not familiarity(learned_from["val"]) and not familiarity(stores()["train"]), "images it has not seen; pixels"


def test_an_encoder_of_a_part_of_the_classes_says_of_which(tmp_path: Path) -> None:
    part = changed(STAGE_ONE, {"iterations": 1}, data=replace(STAGE_ONE.data, train_classes=(0, 3)))
    go(tmp_path / "run", part)
    found = write_features(tmp_path / "run", tmp_path / "features", stores=stores(), device="cpu", quiet=True)
    assert "; images its encoder was trained on, classes 0 to 2 (" in found["train"].info.source


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"views": 3}, "views = 3 but it is 1 or 2"),
        ({"augmented": 0}, "augmented = 0 but at least 1 is needed: leave it out"),
        ({"augmented": 2}, r"augmented = 2 but stage_one/toy has \[data\] augmentation = 'none': leave augmented out"),
    ],
)
def test_ways_to_see_that_cannot_be_are_told(tmp_path: Path, run: Path, asked: dict[str, int], told: str) -> None:
    with pytest.raises(EngramError, match=told):
        write_features(run, tmp_path / "out", stores=stores(), device="cpu", quiet=True, **asked)
    assert not (tmp_path / "out").exists()


def test_a_head_has_no_mirror_images(tmp_path: Path, features: Path) -> None:
    recipe = changed(STAGE_ONE, {"iterations": 1}, backbone="conv4")
    said = {"results": tmp_path / "results", "device": "cpu", "progress": False}
    train(recipe, features=features, out=tmp_path / "run", test=False, **said)
    of_features = {split: Store.open(features / split) for split in ("train", "test")}
    for asked, told in (({"views": 2}, "views = 2"), ({"augmented": 2}, "augmented = 2")):
        with pytest.raises(EngramError, match=f"{told} is for images but toy train holds features: leave it out"):
            write_features(tmp_path / "run", tmp_path / "out", splits=("train",), stores=of_features, **asked)


def test_recipe_named_dataset_is_opened_where_none_is_given(run: Path, tmp_path: Path) -> None:
    with pytest.raises(EngramError, match="unknown dataset 'toy'"):
        write_features(run, tmp_path, device="cpu")
    with pytest.raises(EngramError, match="the protocol is for toy but the store holds other"):
        other = {s: replace_dataset(store) for s, store in stores().items()}
        write_features(run, tmp_path, stores=other, device="cpu", quiet=True)
        train(RECIPE, features=tmp_path, out=tmp_path / "run", results=tmp_path / "results", device="cpu")


def replace_dataset(store: Store) -> Store:
    return Store(store.images, store.offsets, replace(store.info, dataset="other"))


def test_a_dataset_of_pictures_is_never_written_over(run: Path, tmp_path: Path) -> None:
    for split in ("train", "val", "test"):
        (tmp_path / split / "cats").mkdir(parents=True)
        (tmp_path / split / "cats" / "1.png").write_bytes(b"a picture")
    with pytest.raises(EngramError, match=r"train is not a store that Engram wrote \(it holds 'cats'\)"):
        write_features(run, tmp_path, stores=stores(), device="cpu", quiet=True)
    assert len(list(tmp_path.rglob("1.png"))) == 3 and len(list(tmp_path.iterdir())) == 3
