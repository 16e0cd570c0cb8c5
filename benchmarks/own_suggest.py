"""How many labels `suggest` saves: 20 classes of birds, from one label of each to five on average.

Called by ``python -m benchmarks.own_images suggest``. Everything was chosen on classes 161 to 180 of CUB-200-2011,
which ``suggest --fit`` measures; classes 181 to 200 are tested.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.own_birds import BIRDS, FITTED_ON, TESTED_ON, Seen, pictures, seen
from engram.classifier import FewShotClassifier, opening
from engram.classifier.memory import nothing
from engram.classifier.suggesting import suggest
from engram.evaluation.metrics import interval

SEEDS, POOL, BATCH, LABELS = 20, 19, 5, 5
"""pictures of each class that may be asked about, labels asked for at once, labels of each class in the end"""


def measure(chosen: bool) -> dict[str, Any]:
    """Accuracy on pictures held out after every batch of labels, chosen by `suggest` and at random."""
    classifier = FewShotClassifier()
    classifier.engine_ = opening.open_engine(None, "imagenet", None, False, "cpu")
    found = seen(classifier.engine_, pictures(BIRDS, FITTED_ON if chosen else TESTED_ON))
    curves = {how: np.array([_curve(classifier, found, s, how) for s in range(SEEDS)]) for how in ("random", "suggest")}
    n_way = len(found.classes)
    labels = list(range(n_way, LABELS * n_way + 1, BATCH))
    means = {how: runs.mean(0).tolist() for how, runs in curves.items()}
    final = means["random"][-1]
    reached = [count for count, accuracy in zip(labels, means["suggest"], strict=True) if accuracy >= final]
    gain = curves["suggest"][:, -1] - curves["random"][:, -1]
    setting = {"n_way": n_way, "seeds": SEEDS, "pool": POOL, "batch": BATCH}
    intervals = {how: [interval(column) for column in runs.T] for how, runs in curves.items()}
    outcome = {"labels": labels, "accuracy": means, "interval": intervals, "reached": reached[0] if reached else None}
    print(outcome["reached"], means, flush=True)
    return {"setting": setting, **outcome, "gain": float(gain.mean()), "gain_interval": interval(gain)}


def _curve(classifier: FewShotClassifier, found: Seen, seed: int, how: str) -> list[float]:
    rng = np.random.default_rng(seed)
    truth = torch.zeros(len(found.features), dtype=torch.int64)
    for number, rows in enumerate(found.classes):
        truth[torch.from_numpy(rows)] = number
    drawn = np.stack([rng.permutation(rows)[: POOL + 5] for rows in found.classes])
    known, pool, query = drawn[:, 0].tolist(), rng.permutation(drawn[:, 1 : POOL + 1].flatten()), drawn[:, POOL + 1 :]
    accuracies = []
    while True:
        classifier.memory_ = nothing().add(found.features[known], truth[known].tolist(), None)
        columns = torch.from_numpy(classifier.classes_)[
            classifier.answer(found.features[query.flatten()]).log_probs.argmax(1)
        ]
        accuracies.append(float((columns == truth[query.flatten()]).double().mean()))
        if len(known) >= LABELS * len(found.classes):
            return accuracies
        suggested = how == "suggest"
        chosen = suggest(classifier, found.features[pool], BATCH) if suggested else np.arange(BATCH)
        known += pool[chosen].tolist()
        pool = np.delete(pool, chosen)
