"""Benching floors and checkpoints, and comparing what they answered."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_run import QUIET
from toy_store import make_store

from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.bench import bench, compare
from engram.ledger import RunRecord, read_record, record_path, write_record
from engram.models.checkpoint import load
from engram.recipes.schema import DataSettings, Recipe, TestSettings, TrainSettings
from engram.training.loop import train

TOML = """
[method]
name = "proto_net"
[backbone]
name = "conv32"
width = 4
[data]
dataset = "toy"
[train]
iterations = 1
sequences = 1
[test]
n_way = 3
n_query = [1, 2]
n_sequences = 8
"""
RECIPE = Recipe(
    "proto_net/toy",
    "proto_net",
    DataSettings("toy", n_way=3),
    TrainSettings(iterations=2, sequences=2, validate_every=1, validation_sequences=2),
    TestSettings(n_way=3, n_sequences=6),
    backbone="conv32",
    backbone_settings={"width": 4},
)


@pytest.fixture(scope="module")
def store() -> Store:
    return make_store(n_classes=5, per_class=6, noise=20.0, split="test")


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    (tmp_path / "toy.toml").write_text(TOML)
    return str(tmp_path / "toy.toml")


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    stores = {split: make_store(5, 6, split=split) for split in ("train", "val")}
    outcome = train(RECIPE, stores, tmp_path / "run", device=torch.device("cpu"), running=QUIET)
    assert outcome.status == "finished"
    return tmp_path / "run"


def ask(model: str | Path, results: Path, store: Store, **arguments: object) -> tuple[RunRecord, Path]:
    record, _ = bench(model, results=results, store=store, progress=False, device="cpu", **arguments)  # type: ignore[arg-type]
    return record, record_path(results, record)


def test_floors_answer_every_protocol_of_the_recipe(tmp_path: Path, store: Store, recipe: str) -> None:
    record, path = ask("chance", tmp_path / "runs", store, recipe=recipe)
    assert read_record(path).kind == "bench" and record.method == "chance" and record.recipe_name == "chance/toy"
    assert [e.protocol["n_query"] for e in record.evaluations] == [1, 2]
    assert all(e.metrics["accuracy"] == pytest.approx(1 / 3) for e in record.evaluations)
    assert all(e.protocol["dataset_digest"] == store.digest for e in record.evaluations)
    pixels, _ = ask("pixel_centroid", tmp_path / "runs", store, recipe=recipe, n_query=2)
    assert [e.protocol["n_query"] for e in pixels.evaluations] == [2]  # asked once, not once for each of the recipe's
    assert pixels.evaluations[0].tasks_digest == record.evaluations[1].tasks_digest
    assert pixels.evaluations[0].metrics["accuracy"] > 0.9


def test_two_processes_answer_to_the_bit_what_one_does(tmp_path: Path, store: Store, run_folder: Path) -> None:
    """Three hundred streams are several batches, and their images are encoded once for all."""
    asked = {"store": store, "progress": False, "device": "cpu", "n_sequences": 300, "stream_length": 2}
    (one, [alone]), (two, [together]) = (
        bench(run_folder, results=tmp_path / str(devices), devices=devices, **asked)  # type: ignore[arg-type]
        for devices in (1, 2)
    )
    assert np.array_equal(alone.outcomes.probabilities, together.outcomes.probabilities)
    assert alone.tasks_digest == together.tasks_digest and alone.metrics == together.metrics
    assert one.evaluations[0].protocol == two.evaluations[0].protocol and one.recipe_digest == two.recipe_digest
    assert one.training == {"weights": load(run_folder).digest()}  # of what was asked
    assert two.training == one.training | {"processes": 2} and len(list((tmp_path / "2").glob("*.json"))) == 1


def test_a_checkpoint_keeps_its_own_recipe_whatever_it_is_asked(
    tmp_path: Path, store: Store, run_folder: Path, recipe: str
) -> None:
    own, _ = ask(run_folder, tmp_path / "runs", store)
    asked, _ = ask(run_folder, tmp_path / "runs", store, recipe=recipe)
    for record in (own, asked):
        assert record.recipe_name == "proto_net/toy" and record.recipe_digest == RECIPE.digest
        assert record.trained_by and record.trained_by != record.run_id
    assert [e.protocol["n_sequences"] for e in own.evaluations] == [6]
    assert [e.protocol["n_sequences"] for e in asked.evaluations] == [8, 8]


def test_old_weights_without_a_digest_are_asked_all_the_same(tmp_path: Path, store: Store, run_folder: Path) -> None:
    folder = shutil.copytree(load(run_folder).folder, tmp_path / "old")
    raw = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(raw | {"digests": {}}))
    record, _ = ask(folder, tmp_path / "runs", store)
    assert record.training == {} and record.evaluations


def test_changes_of_the_protocol(tmp_path: Path, store: Store, run_folder: Path) -> None:
    changes = {"n_way": 4, "n_shot": 2, "stream_length": 3, "slot_order": "class-order", "query_balance": "dirichlet"}
    record, _ = ask(run_folder, tmp_path / "runs", store, **changes)
    assert changes.items() <= record.evaluations[0].protocol.items()
    assert len(record.evaluations[0].metrics["accuracy_by_position"]) == 3
    with pytest.raises(EngramError, match="6 ways were asked for but toy test offers 5 classes"):
        ask(run_folder, tmp_path / "none", store, n_way=6)
    assert not (tmp_path / "none").exists()


def test_samples_of_the_posterior_at_test(tmp_path: Path, store: Store, run_folder: Path) -> None:
    small = {"n_layers": 1, "width": 4, "history": "none", "train_samples": 2, "bayes": "edge"}
    recipe = replace(RECIPE, name="cml_bgnn/toy", method="cml_bgnn", method_settings=small)
    stores = {split: make_store(5, 6, split=split) for split in ("train", "val")}
    train(recipe, stores, tmp_path / "bayes", device=torch.device("cpu"), running=QUIET)
    expected, one, many = (
        bench(tmp_path / "bayes", results=tmp_path, store=store, progress=False, device="cpu", **asked)
        for asked in ({}, {"test_samples": 1}, {"test_samples": 400})
    )
    assert "test_samples" not in expected[0].evaluations[0].protocol and expected[0].recipe_digest == recipe.digest
    assert many[0].evaluations[0].protocol["test_samples"] == 400 and many[0].recipe_digest == recipe.digest
    away = [np.abs(r[1][0].outcomes.probabilities - expected[1][0].outcomes.probabilities).mean() for r in (one, many)]
    assert 0 < away[1] < 0.5 * away[0]  # more samples, nearer to the expectation
    with pytest.raises(EngramError, match="is a proto_net, which has no posterior to draw 5 samples from"):
        ask(run_folder, tmp_path / "runs", store, test_samples=5)


def test_per_query_predictions_on_request(tmp_path: Path, store: Store, recipe: str) -> None:
    for wanted in (False, True):
        record, path = ask("pixel_centroid", tmp_path / "runs", store, recipe=recipe, n_query=2, predictions=wanted)
        with np.load(path.parent / record.evaluations[0].tasks_file) as tasks:
            assert ("probabilities" in tasks) is wanted
            assert tasks["level_of_task"].shape == (8, 1, 1) and ("labels" in tasks) is wanted
            if wanted:
                right = tasks["probabilities"].argmax(-1) == tasks["labels"]
                assert right.mean() == pytest.approx(record.evaluations[0].metrics["accuracy"], abs=1e-3)


def test_only_equal_questions_are_compared(tmp_path: Path, store: Store, recipe: str) -> None:
    _, first = ask("pixel_centroid", tmp_path, store, recipe=recipe)
    _, second = ask("chance", tmp_path, store, recipe=recipe, n_query=2)
    (row,) = compare(first, second)
    assert row["protocol"]["n_query"] == 2 and row["n"] == 8 and row["difference"] > 0.5
    (back,) = compare(second, first)
    assert back["difference"] == -row["difference"] and back["interval"] == row["interval"]
    (same,) = compare(second, second)
    assert same["difference"] == same["interval"] == 0
    _, others = ask("chance", tmp_path, store, recipe=recipe, n_sequences=7)
    with pytest.raises(EngramError, match="have no tasks in common"):
        compare(second, others)


def test_equal_rows_of_other_images_are_other_questions(tmp_path: Path, store: Store, recipe: str) -> None:
    _, first = ask("chance", tmp_path, store, recipe=recipe)
    elsewhere, second = ask("chance", tmp_path, make_store(5, 6, seed=1, split="test"), recipe=recipe)
    assert elsewhere.evaluations[0].tasks_digest == read_record(first).evaluations[0].tasks_digest
    with pytest.raises(EngramError, match="have no tasks in common"):
        compare(first, second)


def test_a_record_without_its_tasks_is_told(tmp_path: Path, store: Store, recipe: str) -> None:
    record, path = ask("chance", tmp_path, store, recipe=recipe)
    alone = write_record(tmp_path / "elsewhere", record)
    with pytest.raises(EngramError, match=r"per-task results .*elsewhere/tasks/.* cannot be read .* bench the model"):
        compare(path, alone)


def test_results_that_cannot_be_written_are_told(tmp_path: Path, store: Store, recipe: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngramError, match=r"the results folder .*file cannot be made: .*file is not a folder"):
        ask("chance", tmp_path / "file", store, recipe=recipe)


def test_samples_go_to_whatever_a_method_calls_them(tmp_path: Path, store: Store) -> None:
    recipe = replace(RECIPE, method="versa", method_settings={"samples": 4, "width": 8})
    stores = {split: make_store(5, 6, split=split) for split in ("train", "val")}
    train(recipe, stores, tmp_path / "run", device=torch.device("cpu"), running=QUIET)
    few, many = (ask(tmp_path / "run", tmp_path / "runs", store, test_samples=s)[0] for s in (1, 400))
    assert few.evaluations[0].metrics["nll"] != many.evaluations[0].metrics["nll"]


def test_one_training_answers_with_both_statistics(tmp_path: Path, store: Store, run_folder: Path) -> None:
    recipe = replace(RECIPE, method="maml", method_settings={"n_way": 3, "inner_steps": 1, "test_steps": 1})
    stores = {split: make_store(5, 6, split=split) for split in ("train", "val")}
    train(recipe, stores, tmp_path / "maml", device=torch.device("cpu"), running=QUIET)
    alone = ask(tmp_path / "maml", tmp_path / "runs", store)[0]
    together = ask(tmp_path / "maml", tmp_path / "runs", store, query_statistics="queries")[0]
    assert alone.evaluations[0].protocol["batch_norm"] == "support" and alone.recipe_digest == recipe.digest
    assert together.evaluations[0].protocol["batch_norm"] == "task"
    preset = replace(recipe, method_settings={**recipe.method_settings, "query_statistics": "queries"})
    assert together.recipe_digest == preset.digest and together.trained_by == alone.trained_by
    for model, told in ((run_folder, "does not normalise queries"), ("chance", "is for trained models")):
        with pytest.raises(EngramError, match=told):
            ask(model, tmp_path / "runs", store, query_statistics="queries")
