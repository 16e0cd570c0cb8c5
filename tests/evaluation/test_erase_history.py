"""The same model and the same tasks without a past, and memories of frozen features that need no training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_store import make_store

from engram.data.episodes import episodes_at, frozen_tasks
from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.bench import bench, compare
from engram.evaluation.evaluate import evaluate
from engram.evaluation.metrics import paired_difference
from engram.ledger import RunRecord, read_tasks, record_path
from engram.models.build import build_method
from engram.protocol import Protocol
from engram.recipes.schema import DataSettings, Recipe, TrainSettings
from engram.types import Method

PROTOCOL = Protocol("toy", n_way=3, n_query=2, stream_length=8, n_sequences=5, names="named", pool_classes=4)
TOML = """
[method]
name = "proto_memory"
[backbone]
name = "conv32"
[data]
dataset = "toy"
n_way = 3
[train]
iterations = 1
sequences = 1
[test]
n_way = 3
n_query = [2]
stream_length = 8
n_sequences = 20
names = "named"
"""


@pytest.fixture(scope="module")
def store() -> Store:
    """Features of classes that overlap, so that one support is not enough and the past helps."""
    rng = np.random.default_rng(0)
    features = rng.normal(0, 1, (6, 1, 8)) + rng.normal(0, 1, (6, 12, 8))
    return Store.from_arrays(features.astype(np.float32).reshape(-1, 8), [12] * 6, "toy", "test")


def make(stem: str, **settings: object) -> Method:
    recipe = Recipe("toy", stem, DataSettings("toy"), TrainSettings(1, 1), method_settings=settings, backbone="conv32")
    return build_method(recipe, (8,), torch.device("cpu")).eval()


MODELS = {
    "proto_memory": lambda: make("proto_memory"),
    "content": lambda: make("content_memory", width=6, n_layers=1),
    "slot": lambda: make("cml_bgnn", width=6, n_layers=1),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_task_is_answered_as_if_it_were_the_first(name: str, store: Store) -> None:
    model = MODELS[name]()
    erased, kept = (evaluate(model, store, replace(PROTOCOL, erase_history=e)) for e in (True, False))
    tasks = frozen_tasks(store, PROTOCOL.for_store(store))
    for t in range(PROTOCOL.stream_length):
        [episode], _ = episodes_at(store, tasks.slice(slice(None), slice(t, t + 1)), PROTOCOL.n_way)
        with torch.no_grad():
            [first] = model.predict_sequence([episode])
        assert np.allclose(erased.outcomes.probabilities[:, t], first.log_probs.exp().numpy(), atol=1e-5), t
    assert np.allclose(kept.outcomes.probabilities[:, 0], erased.outcomes.probabilities[:, 0], atol=1e-5)
    assert (
        np.abs(kept.outcomes.probabilities - erased.outcomes.probabilities)[:, 1:].max() > 5e-5
    )  # an untrained gate moves little
    assert np.array_equal(kept.outcomes.labels, erased.outcomes.labels)
    assert kept.tasks_digest == erased.tasks_digest


def test_the_first_tasks_asked_again_find_no_past_either(store: Store) -> None:
    asked = replace(PROTOCOL, revisit=3)
    model = MODELS["proto_memory"]()
    erased, kept = (evaluate(model, store, replace(asked, erase_history=e)).outcomes for e in (True, False))
    assert erased.again is not None and kept.again is not None
    assert np.allclose(erased.again, erased.probabilities[:, :3], atol=1e-6)
    assert np.abs(kept.again - kept.probabilities[:, :3]).max() > 1e-3


def test_a_protocol_says_so_only_where_history_is_erased() -> None:
    assert "erase_history" not in PROTOCOL.to_dict()
    assert replace(PROTOCOL, erase_history=True).to_dict()["erase_history"] is True


@pytest.fixture
def features(tmp_path: Path, store: Store) -> Path:
    """A folder as `write_features` leaves it, for the test split."""
    from engram.models.features import _write

    _write(tmp_path / "features/test", store, store.images.numpy(), "features of toys", True)
    (tmp_path / "toy.toml").write_text(TOML)
    return tmp_path / "features"


def ask(features: Path, model: str = "proto_memory", **changes: object) -> tuple[RunRecord, Path]:
    results = features.parent / "runs"
    record, _ = bench(
        model, recipe=str(features.parent / "toy.toml"), features=features, results=results, device="cpu",
        progress=False, **changes,
    )  # type: ignore[arg-type]  # fmt: skip
    return record, record_path(results, record)


def test_a_memory_of_features_needs_no_training_and_its_past_is_compared(features: Path) -> None:
    (kept, first), (erased, second) = ask(features), ask(features, erase_history=True)
    assert kept.method == "proto_memory" and kept.trained_by == ""
    assert "features of toys" in kept.training["features"]
    assert [e.protocol.get("erase_history") for e in (*kept.evaluations, *erased.evaluations)] == [None, True]
    rows = compare(first, second)
    assert [row["part"] for row in rows] == ["all", "last quarter"]
    correct = [read_tasks(p.parent / r.evaluations[0].tasks_file) for p, r in ((first, kept), (second, erased))]
    assert correct[0].shape[:2] == (20, 8)
    for row, part in zip(rows, ([c[:, :] for c in correct], [c[:, 6:] for c in correct]), strict=True):
        assert {**row, **paired_difference(*(c.astype(np.float64) for c in part))} == row
    assert rows[0] != {**rows[1], "part": "all"}
    gain = kept.evaluations[0].metrics["accuracy"] - erased.evaluations[0].metrics["accuracy"]
    assert gain > 0.03  # what it remembers helps, here


def test_single_tasks_have_no_last_quarter(features: Path) -> None:
    first, second = (
        ask(features, model, stream_length=1, names="anonymous")[1] for model in ("proto_memory", "proto_net")
    )
    assert [row["part"] for row in compare(first, second)] == ["all"]


def test_a_method_with_weights_is_refused(features: Path) -> None:
    with pytest.raises(EngramError, match=r"^'cml_bgnn' has \d+ weights that must be trained first: engram train"):
        ask(features, "cml_bgnn")
    with pytest.raises(EngramError, match="'proto_memory' needs --recipe to say which data and tasks"):
        bench("proto_memory", features=features, results=features.parent / "runs", device="cpu")
    with pytest.raises(EngramError, match="'cml_bgnn' is a method that must be trained first"):
        bench("cml_bgnn", recipe=str(features.parent / "toy.toml"), store=make_store(split="test"), device="cpu")
    assert not (features.parent / "runs").exists()
