"""Every JSON that is read from disk, one value exchanged at a time: it is used, or refused in one sentence."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn import pictures
from fuzzing import limited
from mutated import mutations
from test_choosing import STORE, answered
from toy_run import RECIPE, changed, go

from engram.classifier import FewShotClassifier
from engram.classifier.description import sealed
from engram.data.episodes import episodes_at, frozen_tasks
from engram.data.formats.form import SplitSource
from engram.data.store import Store
from engram.data.writing import build
from engram.errors import EngramError
from engram.evaluation.source import resolve_model
from engram.ledger import Ledger, conflicts, new_record, read_ledger, trusted_records, write_record
from engram.ledger.records import Evaluation, _seal
from engram.models.checkpoint import load
from engram.models.features import open_stores
from engram.protocol import Protocol
from engram.recipes.schema import DataSettings
from engram.training.choosing import AS_IT_CAME, AsItCame

SEED = int(os.environ.get("ENGRAM_FAULTS_SEED", 1))
MOST = int(os.environ.get("ENGRAM_FAULTS", 60))
"""mutations of each kind of file; 0 = all of them"""


@pytest.fixture
def survives(tally: Callable[..., None], request: pytest.FixtureRequest) -> Callable[..., None]:
    """``use`` answers or raises an `EngramError` for each mutation, within the time and the memory of `limited`."""

    def counted(original: Any, use: Callable[[Any], object], most: int = MOST) -> None:
        tried = mutations(original, SEED, most or None)
        ends = [(what, ended(use, content)) for what, content in tried]
        told = [f"{what}: {words}" for what, words in ends if words not in ("", "refused")]
        tally(f"values: {request.node.name.removeprefix('test_').replace('_', ' ')}", len(tried), len(told))
        assert not told, "\n".join(told)
        refused = sum(words == "refused" for _, words in ends)
        assert refused > len(tried) / 4  # most values are not of the kind that stood there

    return counted


def ended(use: Callable[[Any], object], content: Any) -> str:
    """What is wrong; "refused" for one sentence, nothing for an answer."""
    try:
        with limited():
            use(content)
    except EngramError as error:
        return "refused" if "\n" not in str(error) and len(str(error)) < 2000 else f"no one sentence: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    go(folder, changed(train={"iterations": 2, "validate_every": 1}))
    return folder


def test_state_of_a_run(run: Path, survives: Callable[..., None]) -> None:
    step = load(run, "last").folder
    original = (step / "state.json").read_text()

    def use(content: Any) -> None:
        (step / "state.json").write_text(json.dumps(content))
        source = resolve_model(str(step), None)
        source.build(Store.from_arrays(torch.zeros(4, 1, 10, 10, dtype=torch.uint8), [2, 2], "toy"))

    try:
        survives(json.loads(original), use)
    finally:
        (step / "state.json").write_text(original)


def test_state_of_a_run_that_goes_on(run: Path, tmp_path: Path, survives: Callable[..., None]) -> None:
    original = json.loads((load(run, "last").folder / "state.json").read_text())
    recipe = changed(train={"iterations": 2, "validate_every": 1})

    def use(content: Any) -> None:
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        shutil.copytree(run, tmp_path / "again")
        (tmp_path / "again" / "step-00000002" / "state.json").write_text(json.dumps(content))
        go(tmp_path / "again", recipe, resume=True)

    survives(original, use, MOST // 2)


def test_an_encoder_as_it_came(tmp_path: Path, survives: Callable[..., None]) -> None:
    result = answered(np.full(len(STORE.class_sizes), 0.5))
    AsItCame(tmp_path).is_beaten(result, STORE, held=True)

    def use(content: Any) -> None:
        (tmp_path / AS_IT_CAME).write_text(json.dumps(content))
        AsItCame(tmp_path).is_beaten(result, STORE, held=False)

    survives(json.loads((tmp_path / AS_IT_CAME).read_text()), use)


def test_feature_stores(tmp_path: Path, survives: Callable[..., None]) -> None:
    folder = tmp_path / "features" / "test"
    features = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float16)
    source = SplitSource(("a", "b"), (3, 3), lambda c: iter(features[3 * c : 3 * c + 3]), (5,), 1, "float16")
    build(folder, "toy", "test", source, "features of conv4 by me, run 1, step-1, from 2", quiet=True)
    original = json.loads((folder / "store.json").read_text())

    def use(content: Any) -> None:
        (folder / "store.json").write_text(json.dumps(content))
        store = open_stores(DataSettings("toy"), ("test",), features=folder.parent)["test"]
        protocol = Protocol("toy", n_way=2, n_sequences=2).for_store(store)
        episodes_at(store, frozen_tasks(store, protocol), 2, "cpu")

    survives(original, use)


def test_run_records(tmp_path: Path, survives: Callable[..., None]) -> None:
    protocol = Protocol("glyphs", dataset_digest="d").to_dict()
    metrics = {"accuracy": 0.5, "interval": 0.1, "accuracy_by_position": [0.5], "n_tasks": 3, "query_pairs": None}
    audit = [{"probe": "p", "verdict": "clean", "effect": 0.0, "bound": 0.1, "declared": False, "kind": "exact"}]
    record = new_record(
        "train", RECIPE, "cpu", 0, curves={"iteration": [1, 2], "accuracy": [0.1, 0.2]}, audit=audit,
        evaluations=[Evaluation(protocol, "t", metrics)], audit_protocol=protocol,
        training={"iterations": 2, "resumed_from": "", "seconds": 1.0},
    )  # fmt: skip
    good = write_record(tmp_path, record)
    original = json.loads(good.read_text())
    other = tmp_path / "other.json"

    def use(content: Any) -> None:
        other.write_text(json.dumps(content | {"seal": _seal(content)}) if isinstance(content, dict) else "[]")
        records, problems = read_ledger(tmp_path)
        assert record.run_id in [r.run_id for r in records]
        kept, _ = trusted_records(tmp_path)
        for found in (records, kept):
            ledger = Ledger(found)
            assert conflicts(found) is not None and ledger.unanswered is not None
            ledger.newest_answer(RECIPE)
            ledger.trainings(RECIPE)
            ledger.audit(RECIPE)
            assert all(repr(r) and r.origin is not None for r in found)
        if problems:
            assert "other.json" in problems[0]
            raise EngramError(problems[0])

    survives({key: value for key, value in original.items() if key != "seal"}, use)


def test_saved_classifiers(tmp_path: Path, survives: Callable[..., None]) -> None:
    FewShotClassifier("pixel_centroid", "photographs").fit(*pictures(2, size=12)).save(tmp_path / "model")
    file, question = tmp_path / "model/classifier.json", pictures(1, size=12)[0]
    original = json.loads(file.read_text())
    del original["digest"]

    def use(content: Any) -> None:
        file.write_bytes(sealed(content))
        FewShotClassifier.load(tmp_path / "model").predict_proba(question)

    survives(original, use, MOST // 2)
