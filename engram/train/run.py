"""A whole run: recipe in, trained model, test results and run record out. `engram train` is this call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engram.bench.evaluate import Result, evaluate
from engram.data.protocol import Protocol
from engram.data.store import Store
from engram.errors import EngramError
from engram.ledger import RunRecord, current_commit, new_run_id, record_path, software_versions, utc_now, write_record
from engram.recipes import Recipe, load_recipe
from engram.train.build import choose_device, resolve_method
from engram.train.features import SPLITS, open_stores
from engram.train.loop import TrainOutcome
from engram.train.loop import train as run_loop
from engram.types import Method

RESULTS = Path("results/runs")


@dataclass(frozen=True)
class TrainedRun:
    record: RunRecord
    record_file: Path
    method: Method
    results: tuple[Result, ...]
    folder: Path


def describe_device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"


def adapt(recipe: Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """The recipe with command-line overrides: seed, backbone, dataset, iterations; None keeps the recipe's value."""
    given = {k: v for k, v in overrides.items() if v is not None}
    train = replace(recipe.train, **{k: given[k] for k in ("seed", "iterations", "precision") if k in given})
    data = replace(recipe.data, **{k: given[k] for k in ("dataset",) if k in given})
    return replace(recipe, train=train, data=data, **{k: given[k] for k in ("backbone", "method") if k in given})


def protocols_of(recipe: Recipe, split: str = "test") -> tuple[Protocol, ...]:
    """One protocol for each number of queries the recipe tests with."""
    test = recipe.test
    return tuple(
        Protocol(
            dataset=recipe.data.dataset,
            split=split,
            n_way=test.n_way,
            n_shot=test.n_shot,
            n_query=n_query,
            labelled_fraction=test.labelled_fraction,
            slot_order=test.slot_order,
            stream_length=test.stream_length,
            pool_classes=test.pool_classes,
            names=test.names,
            n_sequences=test.n_sequences,
        )
        for n_query in test.n_query
    )


def train(
    recipe: str | Recipe,
    *,
    data: Path | None = None,
    out: Path | None = None,
    results: Path = RESULTS,
    device: str = "auto",
    seed: int | None = None,
    iterations: int | None = None,
    method: str | None = None,
    backbone: str | None = None,
    dataset: str | None = None,
    precision: str | None = None,
    max_minutes: float | None = None,
    resume: bool = False,
    test: bool = True,
    predictions: bool = False,
    compile_encoder: bool = False,
    progress: bool = True,
    note: str = "",
    features: Path | None = None,
    stores: Mapping[str, Store] | None = None,
) -> TrainedRun:
    """Train a recipe, answer its test protocols with the best-on-validation weights, and append a run record.

    ``features`` is a folder of `engram.train.features.write_features`, used in place of the dataset's images.
    """
    chosen = load_recipe(recipe) if isinstance(recipe, str) else recipe
    chosen = adapt(
        chosen,
        {
            "seed": seed,
            "iterations": iterations,
            "method": method,
            "backbone": backbone,
            "dataset": dataset,
            "precision": precision,
        },
    )
    if not resolve_method(chosen.method).card.trainable:
        raise EngramError(
            f"'{chosen.method}' has nothing to train: use engram bench {chosen.method} --recipe {chosen.name}"
        )
    where = choose_device(device)
    folder = out or Path("runs") / chosen.name.replace("/", ".")
    opened = stores or open_stores(chosen.data.dataset, SPLITS, data, features)
    if test:
        for protocol in protocols_of(chosen):
            protocol.check(opened["test"])  # before hours of training, not after
    started, clock = utc_now(), time.monotonic()
    blank = _blank_record(chosen, where, started)
    try:
        outcome = run_loop(
            chosen, opened, folder, device=where, resume=resume, max_minutes=max_minutes, progress=progress,
            compile_encoder=compile_encoder,
        )  # fmt: skip
        tests = _test(outcome, chosen, opened, where, progress) if test and outcome.status == "finished" else ()
    except EngramError as error:
        failed = replace(blank, status="failed", error=str(error), seconds=time.monotonic() - clock, note=note)
        write_record(results, failed)
        raise
    if features:
        outcome = replace(outcome, training={**outcome.training, "features": opened["train"].info.source})
    record = _complete(blank, outcome, tests, results, predictions, time.monotonic() - clock, note)
    path = write_record(results, record)
    return TrainedRun(record, path, outcome.method, tests, folder)


def _test(
    outcome: TrainOutcome, recipe: Recipe, stores: Mapping[str, Store], device: torch.device, progress: bool
) -> tuple[Result, ...]:
    store = stores["test"].to(device) if device.type == "cuda" else stores["test"]
    return tuple(evaluate(outcome.method, store, p, device, progress=progress) for p in protocols_of(recipe))


def _blank_record(recipe: Recipe, device: torch.device, started: str) -> RunRecord:
    return RunRecord(
        run_id=new_run_id(),
        kind="train",
        status="finished",
        method=recipe.method,
        recipe_name=recipe.name,
        recipe=recipe.to_dict(),
        recipe_digest=recipe.digest,
        seed=recipe.train.seed,
        started=started,
        seconds=0.0,
        commit=current_commit(),
        device=describe_device(device),
        versions=software_versions(),
    )


def _complete(
    blank: RunRecord,
    outcome: TrainOutcome,
    tests: tuple[Result, ...],
    folder: Path,
    predictions: bool,
    seconds: float,
    note: str,
) -> RunRecord:
    """The record with what came out, and per-task results beside it."""
    record = replace(
        blank,
        run_id=outcome.run_id,
        status=outcome.status,
        seconds=round(seconds, 1),
        curves=outcome.curves,
        training=outcome.training,
        note=note,
    )
    stem = record_path(folder, record).with_suffix("").name
    evaluations = []
    for i, result in enumerate(tests):
        file = f"tasks/{stem}.{i}.npz"
        result.save_tasks(folder / file, predictions)
        evaluations.append(result.to_evaluation(file))
    return replace(record, evaluations=evaluations)
