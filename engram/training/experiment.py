"""A whole run: recipe in, trained model, test results and run record out. `engram train` is this call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.evaluate import Result, evaluate
from engram.ledger import (
    RESULTS,
    RunRecord,
    check_results_folder,
    current_commit,
    new_run_id,
    record_path,
    run_stem,
    software_versions,
    utc_now,
    write_record,
)
from engram.machine.device import choose_device, describe_device, kept_memory
from engram.machine.failures import explain
from engram.models.build import resolve_method, revisions
from engram.models.features import SPLITS, check_maker, open_stores
from engram.recipes import Recipe, check_recipe, load_recipe
from engram.recipes.protocols import protocols_of
from engram.training.loop import TrainOutcome
from engram.training.loop import train as run_loop
from engram.types import Method


@dataclass(frozen=True)
class TrainedRun:
    record: RunRecord
    record_file: Path
    method: Method
    results: tuple[Result, ...]
    folder: Path


def adapt(recipe: Recipe, overrides: Mapping[str, Any]) -> Recipe:
    """The recipe with command-line overrides: seed, backbone, dataset, iterations; None keeps the recipe's value.

    Another method than the recipe's has no claim to the recipe's published figure, and another backbone none to the
    settings of the recipe's.
    """
    given = {k: v for k, v in overrides.items() if v is not None}
    train = replace(recipe.train, **{k: given[k] for k in ("seed", "iterations", "precision") if k in given})
    data = replace(recipe.data, **{k: given[k] for k in ("dataset",) if k in given})
    changed = replace(recipe, train=train, data=data, **{k: given[k] for k in ("backbone", "method") if k in given})
    if changed.backbone != recipe.backbone:
        changed = replace(changed, backbone_settings={})
    check_recipe(changed, changed.name)
    return changed if changed.method == recipe.method else replace(changed, paper=None)


def train(
    recipe: str | Recipe,
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    results: str | Path = RESULTS,
    device: str = "auto",
    seed: int | None = None,
    iterations: int | None = None,
    method: str | None = None,
    backbone: str | None = None,
    dataset: str | None = None,
    precision: str | None = None,
    max_minutes: float | None = None,
    whole_run: bool = False,
    resume: bool = False,
    test: bool = True,
    predictions: bool = False,
    plain: bool = False,
    micro_batch: int = 0,
    progress: bool = True,
    note: str = "",
    features: str | Path | None = None,
    stores: Mapping[str, Store] | None = None,
) -> TrainedRun:
    """Train a recipe, answer its test protocols with the best-on-validation weights, and append a run record.

    ``features`` is a folder of `engram.models.features.write_features`, used in place of the dataset's images.
    """
    results = Path(results)
    overrides = {"seed": seed, "iterations": iterations, "precision": precision}
    names = {"method": method, "backbone": backbone, "dataset": dataset}
    chosen = adapt(load_recipe(recipe) if isinstance(recipe, str) else recipe, overrides | names)
    _check_before(chosen, results)
    where = choose_device(device)
    folder = Path(out or Path("runs") / _folder_name(chosen))
    opened = stores or open_stores(chosen.data.dataset, SPLITS, data, features)
    if features:
        check_maker(opened["train"], chosen)
    for protocol in protocols_of(chosen) if test else ():
        protocol.check(opened["test"])  # before hours of training, not after
    blank, clock = replace(_blank_record(chosen, where, utc_now()), note=note), time.monotonic()
    try:
        outcome = run_loop(
            chosen, opened, folder, device=where, resume=resume, max_minutes=max_minutes, progress=progress,
            plain=plain, micro_batch=micro_batch, whole_run=whole_run,
        )  # fmt: skip
        tests = _test(outcome, chosen, opened, where, progress) if test and outcome.status == "finished" else ()
    except Exception as error:
        shown = explain(error, chosen, where)
        _record_failure(blank, results, shown, time.monotonic() - clock)
        if shown is error:
            raise
        raise shown from error
    if features:
        outcome = replace(outcome, training={**outcome.training, "features": opened["train"].info.source})
    record = _complete(blank, outcome, tests, results, predictions, time.monotonic() - clock)
    path = write_record(results, record)
    return TrainedRun(record, path, outcome.method, tests, folder)


def _folder_name(recipe: Recipe) -> str:
    """A recipe of the box with another method gets a folder of its own."""
    return run_stem(recipe.method, recipe.name) if "/" in recipe.name else recipe.name


def _check_before(recipe: Recipe, results: Path) -> None:
    """What is known before any data is opened."""
    if not resolve_method(recipe.method).card.trainable:
        raise EngramError(
            f"'{recipe.method}' has nothing to train: use engram bench {recipe.method} --recipe {recipe.name}"
        )
    check_results_folder(results)


def _record_failure(blank: RunRecord, results: Path, error: Exception, seconds: float) -> None:
    told = str(error) if isinstance(error, EngramError) else f"{type(error).__name__}: {error}"
    with suppress(EngramError):  # of a record that cannot be written; the failure itself is what a person needs to see
        write_record(results, replace(blank, status="failed", error=told, seconds=seconds))


def _test(
    outcome: TrainOutcome, recipe: Recipe, stores: Mapping[str, Store], device: torch.device, progress: bool
) -> tuple[Result, ...]:
    store = stores["test"].to(device) if device.type == "cuda" else stores["test"]
    protocols = protocols_of(recipe, batch_norm=outcome.method.card.batch_norm)
    with kept_memory():
        return tuple(evaluate(outcome.method, store, p, device, progress=progress) for p in protocols)


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
        revision=len(revisions(recipe)),
    )


def _complete(
    blank: RunRecord,
    outcome: TrainOutcome,
    tests: tuple[Result, ...],
    folder: Path,
    predictions: bool,
    seconds: float,
) -> RunRecord:
    """The record with what came out, and per-task results beside it."""
    record = replace(
        blank,
        run_id=outcome.run_id,
        status=outcome.status,
        seconds=round(seconds, 3),
        curves=outcome.curves,
        training=outcome.training,
        start=outcome.start,
    )
    stem = record_path(folder, record).with_suffix("").name
    evaluations = []
    for i, result in enumerate(tests):
        file = f"tasks/{stem}.{i}.npz"
        result.save_tasks(folder / file, predictions)
        evaluations.append(result.to_evaluation(file))
    return replace(record, evaluations=evaluations)
