"""Measuring a model by name or checkpoint, and comparing two runs: what `engram bench` and `engram compare` call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import torch

from engram import processes
from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.evaluate import Result, evaluate
from engram.evaluation.metrics import paired_difference
from engram.evaluation.source import model_name, resolve_model
from engram.ledger import (
    Evaluation,
    RunRecord,
    check_results_folder,
    correctness,
    read_record,
    record_path,
    write_record,
)
from engram.machine.device import explained, kept_memory
from engram.machine.together import Call, together
from engram.models.build import trusting_code
from engram.models.features import open_stores
from engram.options import ASKABLE, BenchKeywords, read
from engram.recipes.protocols import protocols_of


def bench(
    model: str | Path = "", *, store: Store | None = None, progress: bool = True, **options: Unpack[BenchKeywords]
) -> tuple[RunRecord, tuple[Result, ...]]:
    """Answer a recipe's protocols with a checkpoint folder, or with an untrained method by name and a recipe.

    ``store`` is asked in place of the dataset's split. Options are those of `engram bench`
    (`engram.options.BenchKeywords`) and other fields of `engram.Protocol`, each in place of what the recipe says:

    - n_way, n_shot, n_query, n_sequences, stream_length, slot_order, names, ...: the tasks;
    - recipe: whose tasks to answer; method: in place of a run folder, ``package.module:Class`` for your own;
    - features: a folder of `engram.models.features.write_features`, used in place of the dataset's images;
    - query_statistics: asks MAML and its like otherwise than their recipe says;
    - which_weights: "last" or "average" in place of those validation chose, where the run kept a moving average;
    - devices: processes that answer together, each with a GPU of its own, or a core where there is none;
    - data, results, device, split, predictions, note; trust_code: import a class that the run folder names.
    """
    how = read("bench", BenchKeywords, options)
    call = Call(__name__, "bench", model, {"store": store, "progress": False, **options})
    with together(how["devices"], how["device"], call) as where:
        return _bench(model, how, store, where, progress and processes.is_first())


def _bench(
    model: str | Path, how: BenchKeywords, store: Store | None, where: torch.device, progress: bool
) -> tuple[RunRecord, tuple[Result, ...]]:
    """What each process does; the first alone writes a record."""
    results = Path(how["results"])
    changes: dict[str, Any] = {key: value for key, value in how.items() if key in ASKABLE}
    name, on_features, samples = model_name(model, how["method"]), how["features"] is not None, how["test_samples"] or 0
    with processes.agreed():
        with trusting_code(how["trust_code"]):
            asking = samples, how["query_statistics"], how["which_weights"]
            source = resolve_model(name, how["recipe"], on_features, *asking)
        check_results_folder(results)
        opened = store or open_stores(source.asked.data, (how["split"],), how["data"], how["features"])[how["split"]]
        protocols = protocols_of(source.asked, how["split"], **changes)
        for protocol in protocols:
            protocol.check(opened)
    blank, clock = source.blank_record("bench", where, opened), time.monotonic()
    with explained(source.recipe, where), kept_memory(), trusting_code(how["trust_code"]):
        method = source.build(opened).to(where)
        on_device = opened.to(where) if where.type == "cuda" else opened
        asked = [replace(p, batch_norm=method.card.batch_norm) for p in protocols]
        share = processes.mine()
        tests = tuple(evaluate(method, on_device, p, where, progress=progress, share=share) for p in asked)
    training: dict[str, Any] = {"features": opened.info.source} if how["features"] else {}
    training |= {"weights": source.weights} if source.weights else {}
    training |= {"which_weights": how["which_weights"]} if how["which_weights"] != "chosen" else {}
    training |= {"processes": share.count} if share.count > 1 else {}
    record = replace(blank, seconds=round(time.monotonic() - clock, 3), training=training, note=how["note"])
    if processes.is_first():
        record = with_tests(record, tests, results, how["predictions"])
        write_record(results, record)
    return record, tests


def with_tests(record: RunRecord, tests: Sequence[Result], folder: Path, predictions: bool) -> RunRecord:
    """The record with what was answered, and per-task results beside it.

    Where those cannot be written, as on a full disk, the record says so in its note and names no file: the numbers
    have been earned all the same.
    """
    stem = record_path(folder, record).with_suffix("").name
    evaluations, note = [], record.note
    for i, test in enumerate(tests):
        file = f"tasks/{stem}.{i}.npz"
        try:
            test.save_tasks(folder / file, predictions)
        except OSError as error:
            with suppress(OSError):
                (folder / file).unlink()  # half a file is none
            told = f"the per-task results {folder / file} could not be written: {error.strerror or error}"
            note, file = "; ".join(filter(None, (note, told))), ""
        evaluations.append(test.to_evaluation(file))
    return replace(record, evaluations=evaluations, note=note)


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
