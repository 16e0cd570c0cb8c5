"""A checkpoint with an average: everything built on it uses what validation chose, or what is asked for by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_attach import HEAD, stores, train_head
from toy_run import STAGE_ONE, changed, go

import engram
from engram.classifier.opening import open_engine
from engram.errors import EngramError
from engram.evaluation.bench import bench
from engram.evaluation.source import resolve_model
from engram.ledger import Ledger
from engram.models.checkpoint import Chosen, load, load_method
from engram.models.features import extract_features, write_features
from engram.models.packing import attach, pack

CPU = torch.device("cpu")
AVERAGED = changed(STAGE_ONE, {"average": 0.9, "learning_rate": 0.02})


def choose(run: Path, chosen: Chosen) -> Path:
    """As if validation had found it the better one."""
    for file in run.glob("*/state.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"chosen": chosen}))
    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    go(tmp_path / "run", AVERAGED)
    return choose(tmp_path / "run", "average")


def same(a: Any, b: Any) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_the_chosen_ones_are_loaded_unless_others_are_asked_for(run: Path) -> None:
    found = load(run)
    parts: dict[Chosen, Any] = {"weights": found.tensors("weights", "last"), "average": found.tensors("average")}
    assert not same(*parts.values())
    for which, part in (("chosen", "average"), ("average", "average"), ("last", "weights")):
        assert same(load_method(found, CPU, which_weights=which).state_dict(), parts[part])  # type: ignore[arg-type,index]
    assert same(load_method(load(choose(run, "weights")), CPU).state_dict(), parts["weights"])
    with pytest.raises(EngramError, match="which_weights = 'best' but it takes one of chosen, last, average"):
        load_method(found, CPU, which_weights="best")  # type: ignore[arg-type]


def test_a_checkpoint_of_before_reads_as_ever_and_has_no_average(tmp_path: Path) -> None:
    go(tmp_path, STAGE_ONE)
    for file in tmp_path.glob("*/state.json"):
        raw = json.loads(file.read_text())
        del raw["chosen"], raw["recipe"]["train"]["average"]
        file.write_text(json.dumps(raw | {"format_version": 1}))
    found = load(tmp_path)
    assert found.recipe == STAGE_ONE
    assert same(load_method(found, CPU).state_dict(), load_method(found, CPU, which_weights="last").state_dict())
    sentence = r"best-\d+ has no average of its weights: ask for 'chosen' or 'last', or train with \[train\] average"
    with pytest.raises(EngramError, match=sentence):
        load_method(found, CPU, which_weights="average")
    with pytest.raises(EngramError, match=sentence):
        bench(tmp_path, which_weights="average", store=stores()["test"], results=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(EngramError, match="which_weights = 'last' is for trained models, not for 'chance'"):
        resolve_model("chance", "proto_net/glyphs_5w1s", which_weights="last")


@pytest.mark.parametrize("bits", [8, 16])
def test_packed_are_the_chosen_ones_alone(tmp_path: Path, run: Path, bits: Any) -> None:
    packed = load(pack(run, tmp_path / "small", bits))
    assert packed.state.chosen == "weights" and not (packed.folder / "average.safetensors").exists()
    average, last = (load(run).tensors("weights", which) for which in ("average", "last"))  # type: ignore[arg-type]
    name = "backbone.backbone.layers.0.weight"
    found = load_method(packed, CPU).state_dict()[name]
    assert (found - average[name]).abs().max() < 0.1 * (last[name] - average[name]).abs().max()
    assert same(
        load_method(load(pack(tmp_path / "small", tmp_path / "again", bits)), CPU).state_dict(),
        packed.tensors("weights"),
    )


def test_features_say_which_weights_made_them_and_a_head_goes_back_on_those(tmp_path: Path, run: Path) -> None:
    made = {}
    for which in ("chosen", "last", "average"):
        folder = tmp_path / which
        quiet: Any = {"stores": stores(), "device": "cpu", "quiet": True, "dtype": "float32", "which_weights": which}
        made[which] = write_features(run, folder, **quiet)["train"]
        method = load_method(load(run), CPU, which_weights=which)  # type: ignore[arg-type]
        expected = extract_features(method, stores()["train"], dtype="float32")
        assert np.array_equal(made[which].images.numpy(), expected)
    assert made["chosen"].maker == made["average"].maker == made["last"].maker + " average"
    for which in ("last", "average"):
        head = train_head(tmp_path / f"head-{which}", tmp_path / which, HEAD)
        attach(head, run, tmp_path / f"whole-{which}", half=False)
        whole, expected = load(tmp_path / f"whole-{which}").tensors("weights"), load(run).tensors("weights", which)  # type: ignore[arg-type]
        backbone = [name for name in whole if name.startswith("backbone.")]
        assert backbone and all(torch.equal(whole[name], expected[name]) for name in backbone)


def test_another_run_and_a_classifier_start_from_the_chosen_ones(tmp_path: Path, run: Path) -> None:
    expected = load(run).tensors("average")
    rest = {"iterations": 1, "learning_rate": 0.0, "weight_decay": 0.0}
    start = replace(changed(train=rest), backbone_weights=str(run))
    outcome = go(tmp_path / "next", start)
    name = "backbone.backbone.layers.0.weight"
    assert torch.equal(outcome.method.state_dict()[name], expected[name])
    assert outcome.start["weights"] == load(run).state.digests["average"][:16]
    assert same(open_engine(None, run, None, False, "cpu").method.state_dict(), expected)


def test_a_bench_of_others_than_the_chosen_is_recorded_and_answers_for_no_recipe(tmp_path: Path, run: Path) -> None:
    asked: Any = {"store": stores()["test"], "results": tmp_path / "results", "device": "cpu", "progress": False}
    own, _ = engram.bench(run, **asked)
    last, _ = engram.bench(run, which_weights="last", **asked)
    assert "which_weights" not in own.training and last.training["which_weights"] == "last"
    assert [answer.record.run_id for answer in Ledger([own, last]).given] == [own.run_id]
