"""Measuring a model by name or checkpoint, and comparing two runs: what `engram bench` and `engram compare` call."""

from __future__ import annotations

import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engram.bench.evaluate import Result, evaluate
from engram.bench.metrics import paired_difference
from engram.data.protocol import Protocol
from engram.data.store import Store
from engram.errors import EngramError, nearest
from engram.ledger import (
    Evaluation,
    RunRecord,
    current_commit,
    new_run_id,
    read_record,
    record_path,
    software_versions,
    utc_now,
    write_record,
)
from engram.methods import METHODS
from engram.recipes import Recipe, load_recipe
from engram.train.build import build_method, choose_device, resolve_method
from engram.train.checkpoint import load, load_method
from engram.train.features import open_stores
from engram.train.run import RESULTS, describe_device, protocols_of
from engram.types import Method


def bench(
    model: str | Path,
    *,
    recipe: str | None = None,
    data: Path | None = None,
    results: Path = RESULTS,
    device: str = "auto",
    split: str = "test",
    predictions: bool = False,
    progress: bool = True,
    note: str = "",
    features: Path | None = None,
    store: Store | None = None,
    **changes: Any,
) -> tuple[RunRecord, tuple[Result, ...]]:
    """Answer a recipe's protocols with a checkpoint folder, or with an untrained method by name and a recipe.

    ``features`` is a folder of `engram.train.features.write_features`, used in place of the dataset's images.
    ``changes`` replace fields of the protocol: n_way, n_shot, n_query, n_sequences, slot_order, stream_length, ...
    """
    where = choose_device(device)
    method_of, chosen, asked, trained_by = _resolve(str(model), recipe)
    opened = store or open_stores(asked.data.dataset, (split,), data, features)[split]
    protocols = _protocols(asked, split, changes)
    for protocol in protocols:
        protocol.check(opened)
    method = method_of(opened).to(where)
    started, clock = utc_now(), time.monotonic()
    on_device = opened.to(where) if where.type == "cuda" else opened
    tests = tuple(evaluate(method, on_device, p, where, progress=progress) for p in protocols)
    record = RunRecord(
        run_id=new_run_id(),
        kind="bench",
        status="finished",
        method=chosen.method,
        recipe_name=chosen.name,
        recipe=chosen.to_dict(),
        recipe_digest=chosen.digest,
        seed=chosen.train.seed,
        started=started,
        seconds=round(time.monotonic() - clock, 1),
        commit=current_commit(),
        device=describe_device(where),
        versions=software_versions(),
        training={"features": opened.info.source} if features else {},
        trained_by=trained_by,
        note=note,
    )
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


def _resolve(model: str, recipe: str | None) -> tuple[Any, Recipe, Recipe, str]:
    """How to make the method once the store is open, its own recipe, the recipe whose tasks it is asked, its run."""
    if Path(model).exists():
        checkpoint = load(Path(model), which="best")
        asked = load_recipe(recipe) if recipe else checkpoint.recipe
        if asked.method != checkpoint.state.method:
            raise EngramError(
                f"{model} is a checkpoint of {checkpoint.state.method} but the recipe {asked.name} "
                f"is for {asked.method}: give a recipe of {checkpoint.state.method}"
            )

        def from_checkpoint(store: Store) -> Method:
            if tuple(checkpoint.state.image_shape) != store.image_shape:
                trained_on, here = ("x".join(map(str, s)) for s in (checkpoint.state.image_shape, store.image_shape))
                raise EngramError(
                    f"{model} was trained on images of {trained_on} but those of {store.info.dataset} are {here}: "
                    f"give a recipe for the dataset it was trained on"
                )
            return load_method(checkpoint, torch.device("cpu"))

        return from_checkpoint, checkpoint.recipe, asked, checkpoint.state.run_id
    untrained = [stem for stem, kind in METHODS.items() if not kind.card.trainable]
    if ":" not in model and model not in METHODS:
        raise EngramError(f"there is neither a run folder nor an untrained method '{model}'{nearest(model, untrained)}")
    if resolve_method(model).card.trainable:
        raise EngramError(
            f"'{model}' is a method that must be trained first, not a run folder: engram train, then bench its folder"
        )
    if recipe is None:
        raise EngramError(
            f"engram bench {model} needs --recipe to say which data and tasks, such as --recipe proto_net/glyphs_5w1s"
        )
    base = load_recipe(recipe)
    chosen = replace(
        base,
        name=f"{model}/{base.name.split('/')[-1]}",  # its own, or the floor would pass as the recipe's result
        method=model,
        method_settings={},
        backbone="flatten",
        backbone_settings={},
        backbone_weights="",
        paper=None,
    )
    return (lambda store: build_method(chosen, store.image_shape, torch.device("cpu"))), chosen, base, ""


def _protocols(recipe: Recipe, split: str, changes: dict[str, Any]) -> tuple[Protocol, ...]:
    given = {k: v for k, v in changes.items() if v is not None}
    protocols = tuple(replace(p, **given) for p in protocols_of(recipe, split))
    return tuple(dict.fromkeys(protocols))  # a given n_query makes them equal: ask once


def compare(first: Path, second: Path) -> list[dict[str, Any]]:
    """Paired differences of two run records, for each protocol both answered on the same frozen tasks."""
    records = [read_record(Path(p)) for p in (first, second)]
    rows = []
    for a in records[0].evaluations:
        for b in records[1].evaluations:
            if _questions(a) != _questions(b):
                continue
            correct = [_correct(Path(p), e.tasks_file) for p, e in ((first, a), (second, b))]
            rows.append({"protocol": a.protocol, **paired_difference(*correct)})
    if not rows:
        raise EngramError(f"{first} and {second} have no tasks in common: bench both under one protocol first")
    return rows


def _questions(evaluation: Evaluation) -> tuple[str, str]:
    """Index lists can agree by chance of sizes; with the same images behind them they are the same questions."""
    return evaluation.tasks_digest, str(evaluation.protocol.get("dataset_digest"))


def _correct(record: Path, file: str) -> np.ndarray:
    try:
        with np.load(record.parent / file) as arrays:
            return arrays["correct"].astype(np.float64)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise EngramError(
            f"the per-task results {record.parent / file} of {record.name} cannot be read: bench the model again"
        ) from error
