"""Stage one that learns from the answers of an earlier one: loaded, digested, needed to go on, and refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_run import RECIPE, STAGE_ONE, assert_same_end, changed, go, make_stores, train_stage_one

from engram.errors import EngramError
from engram.models.checkpoint import load, load_method
from engram.models.features import write_features
from engram.recipes.schema import Recipe


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_stage_one(tmp_path_factory.mktemp("runs") / "first")


def taught(teacher: Path | str, recipe: Recipe = STAGE_ONE, **changes: Any) -> Recipe:
    return changed(recipe, {"teacher": str(teacher)}, **changes)


def test_a_run_says_the_digest_of_its_teacher_and_resumes_bit_for_bit(tmp_path: Path, first: Path) -> None:
    settings = {"n_base_classes": 6, "turned": 0.5, "mixup": 0.4}
    recipe = taught(first, method_settings=settings)
    outcome = go(tmp_path / "straight", recipe)
    assert outcome.start == {"teacher": load(first).state.digests["weights"][:16]}
    assert {"train_distilled", "train_turning"} <= outcome.curves.keys()
    go(tmp_path / "parts", recipe, max_iterations=3)
    resumed = go(tmp_path / "parts", recipe, resume=True)
    assert resumed.start == outcome.start == load(tmp_path / "parts").state.start
    assert_same_end(tmp_path / "straight", tmp_path / "parts")
    go(tmp_path / "alone", changed(STAGE_ONE, method_settings=settings))
    mine, alone = (load(tmp_path / name, "last") for name in ("straight", "alone"))
    assert mine.tensors("weights").keys() == alone.tensors("weights").keys()
    assert mine.tensors("optimiser").keys() == alone.tensors("optimiser").keys()
    assert not torch.equal(mine.tensors("weights")["head.weight"], alone.tensors("weights")["head.weight"])


def test_going_on_needs_the_same_teacher_and_answering_needs_none(tmp_path: Path, first: Path) -> None:
    teacher = shutil.copytree(first, tmp_path / "teacher")
    recipe = taught(teacher)
    go(tmp_path / "run", recipe, max_iterations=3)
    shutil.rmtree(teacher)
    load_method(load(tmp_path / "run"), torch.device("cpu"))
    with pytest.raises(EngramError, match="there is no checkpoint at .*teacher"):
        go(tmp_path / "run", recipe, resume=True)
    go(teacher, changed(STAGE_ONE, {"iterations": 1}))
    with pytest.raises(EngramError, match=r"cannot be resumed: its teacher has the digest \w{16} but yours \w{16}"):
        go(tmp_path / "run", recipe, resume=True)


def test_teachers_that_cannot_teach_are_told_in_one_sentence(tmp_path: Path, first: Path) -> None:
    go(tmp_path / "proto_net", changed(train={"iterations": 1}))
    narrow = {
        split: type(store)(store.images[..., :8], store.offsets, replace(store.info, digest="narrow"))
        for split, store in make_stores().items()
    }
    features = write_features(first, tmp_path, splits=("train", "val"), stores=make_stores(), device="cpu", quiet=True)
    for recipe, stores, sentence in (
        (
            taught(first, RECIPE),
            None,
            r"proto_net/toy \[train\] teacher = '.*first' but proto_net learns from none: only",
        ),
        (taught(tmp_path / "proto_net"), None, "teacher = '.*' but that is a run of proto_net: name one of stage_one"),
        (taught(first), narrow, "has seen images of 1x10x10 but yours are 1x10x8: name one of your size"),
        (taught(first), make_stores(seed=1), r"6 classes of the training data \w{16} but stage_one is to learn 6 of"),
        (taught(first, method_settings={"n_base_classes": 9}), None, "knows 6 classes of .* is to learn 9 of"),
        (taught(first, backbone="conv4"), features, "answer the same images and these are features: train on images"),
        (taught("runs/absent"), None, "there is no checkpoint at runs/absent"),
        (taught("runs/stage_one.mini_conv4"), None, "not there: make it with engram train stage_one/mini_conv4"),
    ):
        with pytest.raises(EngramError, match=sentence):
            go(tmp_path / "run", recipe, stores=stores)
    assert not (tmp_path / "run").exists()
