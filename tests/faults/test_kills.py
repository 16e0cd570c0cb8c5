"""Training, stores, features, records and the memory, stopped at every operation on files and at any moment: what was
there is there, and going on ends where it would have ended, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn import pictures
from killing import Task, check_failures, check_kills
from toy_run import RECIPE, changed, go, make_stores

from engram.classifier import FewShotClassifier
from engram.data.formats.form import SplitSource
from engram.data.store import Store, verify
from engram.data.writing import build
from engram.ledger import new_record, read_ledger, record_path, write_record
from engram.models.checkpoint import load
from engram.models.features import write_features
from engram.models.run_folder import found

STEPS = changed(train={"iterations": 3, "validate_every": 1})


def train(folder: Path) -> None:
    go(folder, STEPS, resume=bool(found(folder).get("step")))


def trained(folder: Path) -> object:
    """Digests of weights, optimiser and random state of the last step and of the best, and the rest of the state."""
    if not found(folder):
        return ()
    states = [load(folder, which).state for which in ("last", "best")]
    kept = ("digests", "iteration", "curves", "window", "numpy_generator", "optimiser", "best_iteration")
    return [{name: getattr(state, name) for name in kept} for state in states]


def source(seed: int) -> SplitSource:
    rows = np.random.default_rng(seed).integers(0, 256, (2, 3, 1, 4, 4), dtype=np.uint8)
    return SplitSource(("a", "b"), (3, 3), lambda c: iter(rows[c]), (1, 4, 4))


def store_of(seed: int) -> Callable[[Path], object]:
    return lambda folder: build(folder / "train", "toy", "train", source(seed), "memory", quiet=True)


def stored(folder: Path) -> object:
    """The digests of all stores below, each compared with its bytes; other files are nobody's."""
    stores = [Store.open(path.parent) for path in sorted(folder.glob("[!.]*/store.json"))]
    assert all(map(verify, stores))
    return [(s.info, (s.images.sum().item(), s.offsets.tolist())) for s in stores]


RECORD = new_record("train", RECIPE, "cpu", 0, run_id="20260101-000000-abcdef", started="2026-01-01T00:00:00Z")


def record(folder: Path) -> None:
    if not record_path(folder, RECORD).exists():
        write_record(folder, RECORD)


def recorded(folder: Path) -> object:
    records, problems = read_ledger(folder)
    assert not problems
    return [json.dumps(r.recipe) + r.run_id for r in records]


def remember(folder: Path) -> None:
    known = FewShotClassifier.load(folder)
    if "rivet" not in known.classes_:
        known.partial_fit(*pictures(1, ("nut", "rivet"), seed=2)).save(folder)


def remembered(folder: Path) -> object:
    known = FewShotClassifier.load(folder).memory_
    return known.classes, known.labels.tolist(), known.tasks.tolist(), known.items[:].tolist()


def new_model(folder: Path) -> None:
    FewShotClassifier("pixel_centroid", "photographs").partial_fit(*pictures(1)).save(folder)


def features_of(run: Path) -> Callable[[Path], object]:
    splits, stores = ("train", "val"), make_stores()
    return lambda folder: write_features(run, folder, splits=splits, stores=stores, device="cpu", quiet=True)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Task]:
    run = tmp_path_factory.mktemp("run")
    go(run, replace(STEPS, name="proto_net/features"))
    nothing: Callable[[Path], object] = lambda folder: folder.mkdir()  # noqa: E731
    return {
        "training": Task(nothing, train, trained, whole=False),
        "a store": Task(nothing, store_of(0), stored),
        "a store in place of another": Task(store_of(1), store_of(0), stored, whole=False),
        "features": Task(nothing, features_of(run), stored, whole=False),
        "a record": Task(nothing, record, recorded),
        "the memory": Task(new_model, remember, remembered),
    }


KINDS = ("training", "a store", "a store in place of another", "features", "a record", "the memory")


@pytest.mark.parametrize("kind", KINDS)
def test_kills(
    kind: str, tasks: dict[str, Task], tmp_path: Path, tally: Callable[..., None], sample: int, seed: int
) -> None:
    step = 1 if not sample else {"training": 61, "the memory": 29, "features": 23}.get(kind, 7)
    moments = 1 if sample else 100
    tried, told = check_kills(tmp_path, tasks[kind], lambda place: place % step == step // 2, moments, seed)
    tally(f"kills: {kind}", tried, len(told))
    assert tried > 1 and not told, "\n".join(told)


@pytest.mark.parametrize("kind", KINDS)
def test_disks_that_fail(
    kind: str, tasks: dict[str, Task], tmp_path: Path, tally: Callable[..., None], sample: int
) -> None:
    whole = 3 if kind == "training" else 1
    step = {"training": 97, "the memory": 41, "features": 31}.get(kind, 11) if sample else whole
    tried, told = check_failures(tmp_path, tasks[kind], lambda place: place % step == step // 2)
    tally(f"failing disks, two at once: {kind}", tried, len(told))
    assert not told, "\n".join(told)
