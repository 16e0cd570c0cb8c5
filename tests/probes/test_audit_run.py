"""An audit by name or checkpoint leaves a record; streams are listed as the model's recipe lists them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_bench import RECIPE, TOML
from toy_run import QUIET
from toy_store import make_store

from engram.data.store import Store
from engram.errors import EngramError
from engram.ledger import read_record
from engram.models.checkpoint import load
from engram.probes.audit_run import AuditRun, audit_model
from engram.recipes.schema import Recipe
from engram.training.loop import train


@pytest.fixture(scope="module")
def store() -> Store:
    return make_store(n_classes=5, per_class=6, noise=20.0, split="test")


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    (tmp_path / "toy.toml").write_text(TOML)
    return str(tmp_path / "toy.toml")


def trained(folder: Path, recipe: Recipe = RECIPE) -> Path:
    stores = {split: make_store(5, 6, split=split) for split in ("train", "val")}
    train(recipe, stores, folder, device=torch.device("cpu"), running=QUIET)
    return folder


def ask(model: str | Path, results: Path, store: Store, **arguments: Any) -> AuditRun:
    return audit_model(model, results=results, store=store, device="cpu", **{"stream_length": 2} | arguments)


def test_a_floor_is_audited_with_the_recipes_tasks(tmp_path: Path, store: Store, recipe: str) -> None:
    run = ask("pixel_centroid", tmp_path / "runs", store, recipe=recipe, n_sequences=20, note="a note")
    record = read_record(run.record_file)
    assert (record.kind, record.status, record.note) == ("audit", "finished", "a note") and record.evaluations == []
    assert (record.method, record.recipe_name) == ("pixel_centroid", "pixel_centroid/toy")
    assert record.audit == run.report.to_dicts() and run.report.verdict == "clean"
    asked = record.audit_protocol
    assert {k: asked[k] for k in ("n_way", "n_shot", "n_query", "stream_length", "n_sequences", "batch_norm")} == {
        "n_way": 3,
        "n_shot": 1,
        "n_query": 1,
        "stream_length": 2,
        "n_sequences": 20,
        "batch_norm": "none",
    }
    assert asked["dataset_digest"] == store.digest


def test_a_checkpoint_is_audited_in_the_order_it_was_trained_in(tmp_path: Path, store: Store) -> None:
    listed = replace(RECIPE, data=replace(RECIPE.data, slot_order="class-order"))
    run = ask(trained(tmp_path / "run", listed), tmp_path / "runs", store, quick=True, n_way=2, names="named")
    assert run.record.audit_protocol["slot_order"] == "class-order" and run.record.audit_protocol["n_way"] == 2
    assert run.record.audit_protocol["names"] == "named" and run.record.trained_by
    assert {f["kind"] for f in run.record.audit} == {"exact"}
    again = ask(tmp_path / "run", tmp_path / "runs", store, quick=True, n_way=2, names="named")
    assert again.record.audit == run.record.audit and again.record_file != run.record_file


def test_weights_chosen_on_the_test_split_are_a_leak(tmp_path: Path, store: Store) -> None:
    reference = replace(RECIPE, train=replace(RECIPE.train, select_on_test=True))
    stores = {split: make_store(5, 6, split=split) for split in ("train", "val", "test")}
    for recipe, verdict in ((RECIPE, "clean"), (reference, "leak")):
        folder = tmp_path / verdict
        train(recipe, stores, folder, device=torch.device("cpu"), running=QUIET)
        found = ask(folder, tmp_path / "runs", store, quick=True).report["selection"]
        assert found.verdict == verdict and "asked on test" in found.detail
    assert load(tmp_path / "leak", "best", RECIPE.method).state.validation["split"] == "test"


def test_of_a_floor_nobody_knows_how_it_was_chosen(tmp_path: Path, store: Store, recipe: str) -> None:
    run = ask("chance", tmp_path / "runs", store, recipe=recipe, quick=True)
    assert run.report["selection"].verdict == "not applicable"


def test_hidden_labels_that_vote_are_a_leak(tmp_path: Path, store: Store) -> None:
    semi = replace(RECIPE.test, n_shot=3, labelled_fraction=0.4)
    for vote, verdict in (("labelled", "clean"), ("all", "leak")):
        recipe = replace(
            RECIPE,
            method="egnn",
            method_settings={"n_layers": 1, "width": 8, "vote": vote},
            data=replace(RECIPE.data, n_shot=3, labelled_fraction=0.4),
            test=replace(semi, hidden_labels_shown=True),
        )
        found = ask(trained(tmp_path / vote, recipe), tmp_path / "runs", store, quick=True)
        assert found.report["hidden labels"].verdict == verdict
        assert found.record.audit_protocol["labelled_fraction"] == 0.4


def test_what_cannot_be_audited_is_told_and_leaves_nothing(tmp_path: Path, store: Store, recipe: str) -> None:
    for model, arguments, told in (
        ("proto_net", {"recipe": recipe}, "must be trained first"),
        ("chance", {}, "'chance' needs --recipe"),
        ("chance", {"recipe": recipe, "n_way": 9}, "9 ways were asked for but toy test offers 5 classes"),
        ("chance", {"recipe": recipe, "n_sequences": 5}, "at least 2 ways and 20 sequences"),
    ):
        with pytest.raises(EngramError, match=told):
            ask(model, tmp_path / "runs", store, **arguments)
    assert not (tmp_path / "runs").exists()
