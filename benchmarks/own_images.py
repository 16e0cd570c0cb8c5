"""How good and how fast `FewShotClassifier` is, and what goes into the box.

``python -m benchmarks.own_images fit KIND``: on VALIDATION classes, every engine is compared, temperatures and
familiarity are fitted, and engram/weights/box.json is rewritten.
``python -m benchmarks.own_images test KIND``: on TEST classes, accuracy, calibration, rejection, ten rounds of memory.
``python -m benchmarks.own_images encoders``: encoders on birds, drawings and photographs (benchmarks/own_encoders.py).
``python -m benchmarks.own_images confidence``: how honest it is, from 2 to 200 classes and 1 to 50 pictures of each.
``python -m benchmarks.own_images suggest``: labels that `suggest` saves on birds (benchmarks/own_suggest.py).
``python -m benchmarks.own_images speed``: cold and warm calls, pictures per second, the page; which bars hold.

KIND is imagenet or imagenet-lite1 (birds: benchmarks/own_birds.py), photographs (miniImageNet) or glyphs. Each run
writes one JSON to results/own.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file can be run by its path too

from benchmarks.measure import tell_load
from engram.classifier import opening
from engram.classifier.box import WEIGHTS, Boxed, box
from engram.classifier.calibration import calibrate
from engram.classifier.engine import Engine, likeness
from engram.data.datasets import open_split
from engram.data.episodes import TaskList, frozen_tasks
from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.metrics import Outcomes, interval, summarise
from engram.ledger import current_commit, new_run_id, software_versions, utc_now
from engram.methods import METHODS
from engram.protocol import Protocol

PACKAGED = ("imagenet", "imagenet-lite1")
DATASETS = {"photographs": "miniimagenet", "glyphs": "glyphs"}
SHOTS = {"photographs": (1, 5, 20), "glyphs": (1, 3, 5)}
QUERIES = {"photographs": 15, "glyphs": 3}
CHOSEN_AT = 5
"""pictures of each class at which the default engine is chosen"""
ROUNDS = 10


class Tasks(NamedTuple):
    """Tasks of one protocol, and for each as many queries of classes it does not have."""

    protocol: Protocol
    listed: TaskList
    foreign_rows: np.ndarray
    """(tasks, Q)"""


def features_of(kind: str, split: str, folder: Path | None) -> Store:
    """What the kind's encoder sees of every picture of a split: read from ``engram features``, or made here."""
    if folder is not None:
        stored = Store.open(folder / split)
        return Store(stored.images.float(), stored.offsets, stored.info)
    store, engine = open_split(DATASETS[kind], split), opening.open_engine("proto_net", kind, None, False, "cpu")
    seen = [engine.see(store.images[start : start + 256]) for start in range(0, len(store.images), 256)]
    return Store(torch.cat(seen), store.offsets, store.info)


def tasks_of(store: Store, kind: str, shots: int, count: int, n_query: int | None = None) -> Tasks:
    """5-way tasks drawn as 10-way ones: the first five classes are the task, the other five are foreign to it."""
    queries = n_query or QUERIES[kind]
    wide = Protocol(
        DATASETS[kind], store.info.split, n_way=10, n_shot=shots, n_query=queries, n_sequences=count, seed=17
    )
    drawn = frozen_tasks(store, wide.for_store(store))
    own_support, own_query = drawn.support_labels < 5, drawn.query_labels < 5

    def chosen(rows: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return rows[mask].reshape(count, 1, -1)

    listed = TaskList(
        chosen(drawn.support_rows, own_support),
        chosen(drawn.support_labels, own_support),
        chosen(drawn.query_rows, own_query),
        chosen(drawn.query_labels, own_query),
        drawn.class_ids[..., :5],
        None,
    )
    foreign = drawn.query_rows[~own_query].reshape(count, -1)
    return Tasks(replace(wide.for_store(store), n_way=5), listed, foreign)


def each(store: Store, tasks: Tasks) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, np.ndarray]]:
    """support (S, d), labels (S,), query (Q, d), foreign (Q, d), query labels (Q,) of every task."""
    listed = tasks.listed
    for i in range(listed.n_sequences):
        support, query, foreign = (
            store.images[torch.from_numpy(rows)]
            for rows in (listed.support_rows[i, 0], listed.query_rows[i, 0], tasks.foreign_rows[i])
        )
        yield support, torch.from_numpy(listed.support_labels[i, 0]), query, foreign, listed.query_labels[i, 0]


def outcomes(engine: Engine, store: Store, tasks: Tasks, own: bool = False) -> Outcomes:
    """Answers with stored constants; ``own`` = True: as `FewShotClassifier` gives them, with pictures held out."""
    answers = []
    for support, labels, query, _, _ in each(store, tasks):
        sure = calibrate(engine, support, labels, 5, query) if own else None
        answers.append(engine.answer(support, labels, query, 5, calibration=sure).log_probs)
    return Outcomes(tasks.listed.query_labels, torch.stack(answers).exp().numpy()[:, None])


def figures(found: Outcomes) -> dict[str, float]:
    metrics = summarise(found)
    return {name: metrics[name] for name in ("accuracy", "interval", "ece", "nll")}


def fitted_temperature(parts: Sequence[Outcomes]) -> float:
    """The temperature with the smallest negative log-likelihood, by golden section over its logarithm; each of several
    sets of tasks counts the same."""
    logs = [np.log(found.probabilities.astype(np.float64).clip(1e-12)) for found in parts]

    def nll(log_t: float) -> float:
        total = 0.0
        for log_probs, found in zip(logs, parts, strict=True):
            scaled = log_probs / math.exp(log_t)
            scaled -= np.logaddexp.reduce(scaled, -1, keepdims=True)
            total -= float(np.take_along_axis(scaled, found.labels[..., None], -1).mean())
        return total

    low, high, ratio = math.log(0.05), math.log(50.0), (math.sqrt(5) - 1) / 2
    for _ in range(40):
        first, second = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, second) if nll(first) < nll(second) else (first, high)
    return round(math.exp((low + high) / 2), 4)


def fitted_familiarity(store: Store, tasks: Tasks) -> list[float]:
    own, other = [], []
    for support, labels, query, foreign, _ in each(store, tasks):
        both = likeness(support, labels, torch.cat([query, foreign]), 5).amax(-1).double().numpy()
        own.append(both[: len(query)])
        other.append(both[len(query) :])
    return logistic(np.concatenate(own), np.concatenate(other))


def logistic(own: np.ndarray, other: np.ndarray) -> list[float]:
    """Slope and offset of the logistic regression of "of this task" on the largest likeness, by Newton's method."""
    scores = np.concatenate([own, other])
    x = np.stack([scores, np.ones(len(scores))], 1)
    y, weights = (np.arange(len(scores)) < len(own)).astype(float), np.zeros(2)
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ weights))
        weights = weights + np.linalg.solve(x.T @ (x * (p * (1 - p))[:, None]) + 1e-6 * np.eye(2), x.T @ (y - p))
    return [round(float(w), 4) for w in weights]


def area_under_roc(own: np.ndarray, foreign: np.ndarray) -> float:
    """Share of pairs in which the picture of the task has the higher score, ties counted half."""
    order = np.concatenate([own, foreign])
    _, inverse, counts = np.unique(order, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[: len(own)].sum() - len(own) * (len(own) + 1) / 2) / (len(own) * len(foreign)))


def rejection(engine: Engine, store: Store, tasks: Tasks) -> dict[str, float]:
    """Area under the ROC curve of familiarity, task by task, and of the largest class probability beside it."""
    familiar, probable = [], []
    for support, labels, query, foreign, _ in each(store, tasks):
        own, other = (engine.answer(support, labels, part, 5) for part in (query, foreign))
        familiar.append(area_under_roc(own.familiarity.numpy(), other.familiarity.numpy()))
        probable.append(area_under_roc(*(a.log_probs.amax(-1).numpy() for a in (own, other))))
    return {
        "auroc": float(np.mean(familiar)),
        "interval": interval(np.array(familiar)),
        "auroc_of_probability": float(np.mean(probable)),
    }


def fit(kind: str, features: Path | None, count: int) -> dict[str, Any]:
    """Everything the box says of a kind, from validation classes alone."""
    store, entry = features_of(kind, "val", features), replace(box()[kind], temperatures={}, familiarity={})
    tasks = {shots: tasks_of(store, kind, shots, count) for shots in SHOTS[kind]}
    table: dict[str, dict[str, Any]] = {}
    temperatures: dict[str, dict[str, list[float]]] = {}
    for name, transductive in [(n, t) for n in METHODS for t in (False, True)]:
        label = f"{name} transductive" if transductive else name
        try:
            engine = replace(opening.open_engine(name, kind, None, transductive, "cpu"), temperatures={})
        except EngramError:
            continue  # has to be trained on tasks first
        if not engine.by_features or (transductive and not engine.method.card.transductive):
            continue
        if engine.recipe.method != name:
            continue  # what another one was called before
        found = {shots: outcomes(engine, store, t) for shots, t in tasks.items()}
        table[label] = {str(shots): figures(o) for shots, o in found.items()}
        temperatures[label] = {str(shots): [fitted_temperature([o])] for shots, o in found.items()}
        print(label, {s: round(100 * f["accuracy"], 2) for s, f in table[label].items()}, flush=True)
    inductive = {name: rows for name, rows in table.items() if not name.endswith(" transductive")}
    best = max(inductive, key=lambda name: inductive[name][str(CHOSEN_AT)]["accuracy"])
    familiarity = {str(shots): fitted_familiarity(store, t) for shots, t in tasks.items()}
    entry = replace(entry, engine=best, temperatures=temperatures, familiarity=familiarity)
    write_box(kind, entry)
    protocols = {str(shots): t.protocol.to_dict() for shots, t in tasks.items()}
    return {"engines": table, "chosen": best, "chosen_at": CHOSEN_AT, "protocols": protocols, "box": asdict(entry)}


def write_box(kind: str, entry: Boxed) -> None:
    entries = {name: asdict(boxed) for name, boxed in box().items()} | {kind: asdict(entry)}
    (WEIGHTS / "box.json").write_text(json.dumps(entries, indent=1) + "\n")
    box.cache_clear()


def test(kind: str, features: Path | None, count: int) -> dict[str, Any]:
    """The default engine on classes nothing was chosen on."""
    store, engine = features_of(kind, "test", features), opening.open_engine(None, kind, None, False, "cpu")
    plain = replace(engine, temperatures={})
    joint = opening.open_engine(None, kind, None, True, "cpu")
    result: dict[str, Any] = {"engine": engine.recipe.method, "protocols": {}, "shots": {}}
    for shots in SHOTS[kind]:
        tasks = tasks_of(store, kind, shots, count)
        rows = {"default": (engine, True), "temperature 1": (plain, False), "transductive": (joint, True)}
        result["shots"][str(shots)] = {n: figures(outcomes(e, store, tasks, own)) for n, (e, own) in rows.items()}
        result["protocols"][str(shots)] = tasks.protocol.to_dict()
        print(shots, result["shots"][str(shots)]["default"], flush=True)
    result["rejection"] = rejection(engine, store, tasks_of(store, kind, CHOSEN_AT, count))
    result["rounds"] = rounds(engine, store, kind, count)
    return result


def rounds(engine: Engine, store: Store, kind: str, count: int) -> list[float]:
    """Accuracy after 1, 2, ... rounds of one more picture of each class, as `partial_fit` takes them; same queries."""
    last = min(ROUNDS, int(store.group_counts.min()) - 1)
    tasks = tasks_of(store, kind, last, count, min(QUERIES[kind], int(store.group_counts.min()) - last))
    right: list[list[float]] = [[] for _ in range(last)]
    for support, labels, query, _, truth in each(store, tasks):
        number = torch.zeros_like(labels)
        for c in range(5):
            number[labels == c] = torch.arange(last)
        for r in range(last):
            seen = number <= r
            chosen = engine.answer(support[seen], labels[seen], query, 5).log_probs.argmax(-1).numpy()
            right[r].append(float((chosen == truth).mean()))
    return [float(np.mean(values)) for values in right]


def write(folder: Path, name: str, content: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{new_run_id()}.json"
    header = {"measured": utc_now(), "commit": current_commit(), "versions": software_versions()}
    path.write_text(json.dumps({**header, **content}, indent=1, sort_keys=True) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("fit", "test", "encoders", "confidence", "suggest", "speed"))
    parser.add_argument("kind", choices=(*PACKAGED, *DATASETS), nargs="?", default="imagenet")
    parser.add_argument("--features", type=Path, default=None, help="folder of engram features, to save time")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--fit", action="store_true", help="suggest on the classes that it was chosen on")
    parser.add_argument("--out", type=Path, default=Path("results/own"))
    arguments = parser.parse_args()
    if arguments.what == "speed":
        from benchmarks.own_images_speed import speed

        tell_load()
        content = speed()
    elif arguments.what in ("encoders", "confidence"):
        from benchmarks import own_encoders

        call = own_encoders.measure if arguments.what == "encoders" else own_encoders.confidence
        content = call(arguments.tasks)
    elif arguments.what == "suggest":
        from benchmarks.own_suggest import measure

        content = measure(arguments.fit)
    else:
        content = {"kind": arguments.kind, "tasks": arguments.tasks}
        if arguments.kind in PACKAGED:
            from benchmarks import own_birds

            content |= {"fit": own_birds.fit, "test": own_birds.test}[arguments.what](arguments.kind, arguments.tasks)
        else:
            call = {"fit": fit, "test": test}[arguments.what]
            content |= call(arguments.kind, arguments.features, arguments.tasks)
    of_kind = f"{arguments.what}.{arguments.kind}" if arguments.what in ("fit", "test") else arguments.what
    name = "fit.suggest" if arguments.what == "suggest" and arguments.fit else of_kind
    print(f"wrote {write(arguments.out, name, content)}")


if __name__ == "__main__":
    main()
