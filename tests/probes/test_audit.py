"""The audit can fail: it catches the paper's history trained in class order, and clears what has no such channel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gaussian_store import WIDTH, gaussian_store

from engram.data.episodes import draw_tasks, episodes_at
from engram.data.store import Store
from engram.errors import EngramError
from engram.methods import METHODS
from engram.methods.cml_bgnn import CmlBgnnConfig
from engram.nn.backbones import build_backbone
from engram.probes.audit import AuditReport, audit
from engram.protocol import Protocol
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
