"""Measuring a model by name or checkpoint, and comparing two runs: what `engram bench` and `engram compare` call."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.evaluate import Result, evaluate
from engram.evaluation.metrics import paired_difference
from engram.evaluation.source import resolve_model
from engram.ledger import (
    RESULTS,
    Evaluation,
    RunRecord,
    check_results_folder,
    correctness,
    read_record,
    record_path,
    write_record,
)
from engram.machine.device import choose_device, kept_memory
from engram.machine.failures import explained
from engram.models.features import open_stores
from engram.recipes.protocols import protocols_of


def bench(
    model: str | Path,
    *,
    recipe: str | None = None,
    data: str | Path | None = None,
    results: str | Path = RESULTS,
    device: str = "auto",
    split: str = "test",
    predictions: bool = False,
    progress: bool = True,
    note: str = "",
    features: str | Path | None = None,
    store: Store | None = None,
    query_statistics: str | None = None,
    **changes: Any,
) -> tuple[RunRecord, tuple[Result, ...]]:
    """Answer a recipe's protocols with a checkpoint folder, or with an untrained method by name and a recipe.

    ``features`` is a folder of `engram.models.features.write_features`, used in place of the dataset's images.
    ``query_statistics`` ("with_support" or "queries") asks MAML and its like otherwise than their recipe says.
    ``changes`` replace fields of the protocol: n_way, n_shot, n_query, n_sequences, slot_order, stream_length, ...
    """
    where, results = choose_device(device), Path(results)
    source = resolve_model(str(model), recipe, features is not None, changes.get("test_samples") or 0, query_statistics)
    check_results_folder(results)
    opened = store or open_stores(source.asked.data.dataset, (split,), data, features)[split]
    protocols = protocols_of(source.asked, split, **changes)
    for protocol in protocols:
        protocol.check(opened)
    blank, clock = source.blank_record("bench", where, opened), time.monotonic()
    with explained(source.recipe, where), kept_memory():
        method = source.build(opened).to(where)
        on_device = opened.to(where) if where.type == "cuda" else opened
        asked = [replace(p, batch_norm=method.card.batch_norm) for p in protocols]
        tests = tuple(evaluate(method, on_device, p, where, progress=progress) for p in asked)
    training = {"features": opened.info.source} if features else {}
    record = replace(blank, seconds=round(time.monotonic() - clock, 3), training=training, note=note)
    stem = record_path(results, record).with_suffix("").name
    evaluations = []
    for i, test in enumerate(tests):
        _save_tasks(test, results / f"tasks/{stem}.{i}.npz", predictions)
        evaluations.append(test.to_evaluation(f"tasks/{stem}.{i}.npz"))
    record = replace(record, evaluations=evaluations)
    write_record(results, record)
    return record, tests


def _save_tasks(result: Result, path: Path, predictions: bool) -> None:
    try:
        result.save_tasks(path, predictions)
    except OSError as error:
        raise EngramError(f"the per-task results {path} could not be written: {error.strerror or error}") from error


def compare(first: Path, second: Path) -> list[dict[str, Any]]:
    """Paired differences of two run records, for each protocol both answered on the same frozen tasks."""
    records = [read_record(Path(p)) for p in (first, second)]
    rows = []
    for a in records[0].evaluations:
        for b in records[1].evaluations:
            if _questions(a) != _questions(b):
                continue
            correct = [correctness(e, Path(p).parent) for p, e in ((first, a), (second, b))]
            rows.append({"protocol": a.protocol, "part": "all", **paired_difference(*correct)})
            if a.protocol["stream_length"] > 1:
                late = paired_difference(*correct, last_quarter=True)
                rows.append({"protocol": a.protocol, "part": "last quarter", **late})
    if not rows:
        raise EngramError(f"{first} and {second} have no tasks in common: bench both under one protocol first")
    return rows


def _questions(evaluation: Evaluation) -> tuple[Any, ...]:
    """Index lists can agree by chance of sizes; with equal images and streams behind them they are equal questions."""
    shape = (evaluation.protocol.get(key) for key in ("dataset_digest", "stream_length", "n_sequences"))
    return evaluation.tasks_digest, *shape
