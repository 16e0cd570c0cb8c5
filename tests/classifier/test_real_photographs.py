"""On test classes of miniImageNet: the classifier scores what the bench scores, and memory is worth what is said."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from engram.classifier import FewShotClassifier
from engram.classifier.box import WEIGHTS, box
from engram.data.datasets import open_split
from engram.data.episodes import frozen_tasks
from engram.data.store import Store
from engram.evaluation.evaluate import evaluate
from engram.models.checkpoint import load, load_method
from engram.models.packing import attach
from engram.protocol import Protocol

pytestmark = pytest.mark.data
CACHE = os.environ.get("ENGRAM_CACHE")
"""as it was before each test got a cache of its own: building the store of real photographs takes minutes"""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    if not os.environ.get("ENGRAM_DATA"):
        pytest.skip("ENGRAM_DATA is not set: no real photographs here")
    monkeypatch.setenv("ENGRAM_CACHE", CACHE or str(Path("~/.cache/engram").expanduser()))
    return open_split("miniimagenet", "test")


def test_the_classifier_scores_what_the_bench_scores(store: Store, tmp_path: Path) -> None:
    entry = box()["photographs"]
    attach(WEIGHTS / entry.heads[entry.engine], WEIGHTS / entry.encoder, tmp_path / "whole")
    method = load_method(load(tmp_path / "whole"), torch.device("cpu"))
    protocol = Protocol("miniimagenet", "test", n_way=5, n_shot=5, n_query=15, names="named", n_sequences=12, seed=5)
    expected = evaluate(method, store, protocol).outcomes.correct
    tasks = frozen_tasks(store, protocol.for_store(store))
    scores = []
    for i in range(tasks.n_sequences):
        rows, labels = tasks.support_rows[i, 0], tasks.support_labels[i, 0]
        classifier = FewShotClassifier(weights="photographs").fit(store.images[torch.from_numpy(rows)], labels)
        asked = store.images[torch.from_numpy(tasks.query_rows[i, 0])]
        scores.append(classifier.score(asked, tasks.query_labels[i, 0]))
    assert abs(float(np.mean(scores)) - expected.mean()) <= 0.001


def test_ten_rounds_of_one_more_picture_gain_ten_points(store: Store) -> None:
    rng, sizes = np.random.default_rng(0), store.class_sizes
    first, last = [], []
    for _ in range(6):
        chosen = rng.choice(store.n_classes, 5, replace=False)
        rows = np.stack([store.offsets[c] + rng.choice(sizes[c], 25, replace=False) for c in chosen])
        query, truth = store.images[torch.from_numpy(rows[:, 10:].ravel())], np.repeat(np.arange(5), 15)
        classifier = FewShotClassifier(weights="photographs")
        for round_ in range(10):
            classifier.partial_fit(store.images[torch.from_numpy(rows[:, round_])], np.arange(5))
            if round_ == 0:
                first.append(classifier.score(query, truth))
        last.append(classifier.score(query, truth))
    assert np.mean(last) - np.mean(first) >= 0.10
