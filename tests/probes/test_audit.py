"""The audit can fail: it catches the paper's history trained in class order, and clears what has no such channel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gaussian_store import WIDTH, gaussian_store
from test_bench import RECIPE, TOML
from toy_run import QUIET
from toy_store import make_store

from engram.data.episodes import draw_tasks, episodes_at
from engram.data.store import Store
from engram.errors import EngramError
from engram.ledger import read_record
from engram.methods import METHODS
from engram.methods.cml_bgnn import CmlBgnnConfig
from engram.models.checkpoint import load
from engram.nn.backbones import build_backbone
from engram.probes.audit import AuditReport, AuditRun, audit, audit_model
from engram.protocol import Protocol
from engram.recipes.schema import Recipe
from engram.training.loop import train
from engram.types import Method, TrainBatch

LABEL_CHANNELS = ("query order, earlier tasks", "history permuted", "noise, class order", "class order minus shuffled")


@pytest.fixture(scope="module")
def store() -> Store:
    return gaussian_store()


def trained_in_class_order(store: Store, history: str) -> Method:
    """The public preset, one narrow layer, a few seconds; the tasks of a stream have nothing in common but slots."""
    torch.manual_seed(0)
    config = CmlBgnnConfig.preset("public", n_layers=1, width=16, dropout=0.0, history=history)
    method = METHODS["cml_bgnn"](build_backbone("flatten", (WIDTH,), {}), config)
    protocol = Protocol("gauss", "train", stream_length=8, slot_order="class-order", n_sequences=12)
    optimiser, rng = torch.optim.Adam(method.parameters(), 1e-2), np.random.default_rng(1)
    for _ in range(70):
        loss = method.loss(TrainBatch(*episodes_at(store, draw_tasks(store, protocol, rng), 5))).total
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return method


def prototypes() -> Method:
    kind = METHODS["proto_net"]
    return kind(build_backbone("flatten", (WIDTH,), {}), kind.Config())


@pytest.fixture(scope="module")
def slot_report(store: Store) -> AuditReport:
    return audit(trained_in_class_order(store, "slot"), store, train_order="class-order")


@pytest.mark.parametrize("probe", LABEL_CHANNELS)
def test_slot_memory_in_class_order_is_caught(slot_report: AuditReport, probe: str) -> None:
    finding = slot_report[probe]
    assert finding.verdict == "leak" and finding.declared, finding
    assert abs(finding.effect or 0) > 0.1, finding  # not by a hair


def test_the_audit_of_slot_memory_says_where_it_does_not_leak(slot_report: AuditReport) -> None:
    for probe in ("query order", "query order, all tasks alike", "later tasks", "noise, shuffled", "support order"):
        assert slot_report[probe].verdict == "clean", slot_report[probe]
    assert slot_report["company"].verdict == slot_report["history erased"].verdict == "declared"
    # Whose past it is does not matter: what helps is the order of the slots, which all streams share.
    assert slot_report["own past against foreign"].verdict == "clean"
    assert slot_report["gain from the past"].effect > 0.05  # type: ignore[operator]
    assert slot_report.verdict == "leak" and slot_report.summary.startswith("4 leaks (query order, earlier tasks;")


def test_the_same_graph_without_history_is_clean(store: Store) -> None:
    report = audit(trained_in_class_order(store, "none"), store, train_order="class-order")
    assert {report[probe].verdict for probe in LABEL_CHANNELS} == {"clean", "not applicable"}
    assert report["noise, class order"].verdict == report["class order minus shuffled"].verdict == "clean"
    assert report["history erased"].verdict == "not applicable" and report.verdict == "declared"


def test_prototypes_are_clean_everywhere(store: Store) -> None:
    report = audit(prototypes(), store)
    assert report.verdict == "clean", report.summary
    assert report["number of queries"].effect == report["class order minus shuffled"].effect == 0
    assert "11 per class" in report["number of queries"].detail  # as many as 12 images per class allow


def test_an_audit_is_repeatable_and_leaves_everything_as_it_was(store: Store) -> None:
    method = prototypes().train()
    state = torch.get_rng_state()
    first, again = (audit(method, store, n_sequences=20, stream_length=2) for _ in range(2))
    assert first.to_dicts() == again.to_dicts()
    assert method.training and torch.equal(state, torch.get_rng_state())
    assert torch.get_default_dtype() is torch.float32


def test_a_quick_audit_asks_the_exact_questions_only(store: Store) -> None:
    report = audit(prototypes(), store, quick=True)
    assert {f.kind for f in report.findings} == {"exact"} and len(report.findings) == 14
    assert report.seconds < 5 and report.protocol.dataset_digest == store.digest


def test_a_single_task_has_no_past_and_no_future(store: Store) -> None:
    method = METHODS["cml_bgnn"](build_backbone("flatten", (WIDTH,), {}), CmlBgnnConfig(n_layers=1, width=8))
    report = audit(method, store, stream_length=1, n_sequences=20)
    asked_of_streams = [f for f in report.findings if f.verdict == "not applicable"]
    others = {f.probe for f in asked_of_streams if "a stream of one task has no" not in f.detail}
    assert len(asked_of_streams) == 9 and others == {"hidden labels", "selection"}


def test_a_named_stream_is_audited_too(store: Store) -> None:
    assert audit(prototypes(), store, names="named", quick=True).verdict == "clean"


def test_numbers_that_cannot_work_are_told(store: Store) -> None:
    with pytest.raises(EngramError, match="n_sequences = 5"):
        audit(prototypes(), store, n_sequences=5)
    with pytest.raises(EngramError, match="need 13"):
        audit(prototypes(), store, n_shot=12)


@pytest.fixture(scope="module")
def pictures() -> Store:
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


def test_a_floor_is_audited_with_the_recipes_tasks(tmp_path: Path, pictures: Store, recipe: str) -> None:
    run = ask("pixel_centroid", tmp_path / "runs", pictures, recipe=recipe, n_sequences=20, note="a note")
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
    assert asked["dataset_digest"] == pictures.digest


def test_a_checkpoint_is_audited_in_the_order_it_was_trained_in(tmp_path: Path, pictures: Store) -> None:
    listed = replace(RECIPE, data=replace(RECIPE.data, slot_order="class-order"))
    run = ask(trained(tmp_path / "run", listed), tmp_path / "runs", pictures, quick=True, n_way=2, names="named")
    assert run.record.audit_protocol["slot_order"] == "class-order" and run.record.audit_protocol["n_way"] == 2
    assert run.record.audit_protocol["names"] == "named" and run.record.trained_by
    assert {f["kind"] for f in run.record.audit} == {"exact"}
    again = ask(tmp_path / "run", tmp_path / "runs", pictures, quick=True, n_way=2, names="named")
    assert again.record.audit == run.record.audit and again.record_file != run.record_file


def test_weights_chosen_on_the_test_split_are_a_leak(tmp_path: Path, pictures: Store) -> None:
    reference = replace(RECIPE, train=replace(RECIPE.train, select_on_test=True))
    stores = {split: make_store(5, 6, split=split) for split in ("train", "val", "test")}
    for recipe, verdict in ((RECIPE, "clean"), (reference, "leak")):
        folder = tmp_path / verdict
        train(recipe, stores, folder, device=torch.device("cpu"), running=QUIET)
        found = ask(folder, tmp_path / "runs", pictures, quick=True).report["selection"]
        assert found.verdict == verdict and "asked on test" in found.detail
    assert load(tmp_path / "leak", "best", RECIPE.method).state.validation["split"] == "test"


def test_of_a_floor_nobody_knows_how_it_was_chosen(tmp_path: Path, pictures: Store, recipe: str) -> None:
    run = ask("chance", tmp_path / "runs", pictures, recipe=recipe, quick=True)
    assert run.report["selection"].verdict == "not applicable"


def test_hidden_labels_that_vote_are_a_leak(tmp_path: Path, pictures: Store) -> None:
    semi = replace(RECIPE.test, n_shot=3, labelled_fraction=0.4)
    for vote, verdict in (("labelled", "clean"), ("all", "leak")):
        recipe = replace(
            RECIPE,
            method="egnn",
            method_settings={"n_layers": 1, "width": 8, "vote": vote},
            data=replace(RECIPE.data, n_shot=3, labelled_fraction=0.4),
            test=replace(semi, hidden_labels_shown=True),
        )
        found = ask(trained(tmp_path / vote, recipe), tmp_path / "runs", pictures, quick=True)
        assert found.report["hidden labels"].verdict == verdict
        assert found.record.audit_protocol["labelled_fraction"] == 0.4


def test_what_cannot_be_audited_is_told_and_leaves_nothing(tmp_path: Path, pictures: Store, recipe: str) -> None:
    for model, arguments, told in (
        ("proto_net", {"recipe": recipe}, "must be trained first"),
        ("chance", {}, "'chance' needs --recipe"),
        ("chance", {"recipe": recipe, "n_way": 9}, "9 ways were asked for but toy test offers 5 classes"),
        ("chance", {"recipe": recipe, "n_sequences": 5}, "at least 2 ways and 20 sequences"),
    ):
        with pytest.raises(EngramError, match=told):
            ask(model, tmp_path / "runs", pictures, **arguments)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("quick", [False, True])
def test_two_processes_find_to_the_bit_what_one_does(tmp_path: Path, pictures: Store, quick: bool) -> None:
    """Four hundred streams are several pieces."""
    model, asked = trained(tmp_path / "run"), {"quick": quick, "n_sequences": 400}
    one, two = (ask(model, tmp_path / str(devices), pictures, devices=devices, **asked) for devices in (1, 2))
    assert one.report.findings == two.report.findings and one.record.audit_protocol == two.record.audit_protocol
    assert two.record.training == {"processes": 2} and len(list((tmp_path / "2").glob("*.json"))) == 1
