"""Measuring a model by name or checkpoint, and comparing two runs: what `engram bench` and `engram compare` call."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engram.bench.evaluate import Result, evaluate
from engram.bench.metrics import paired_difference
from engram.data.datasets import open_split
from engram.data.protocol import Protocol
from engram.data.store import Store
from engram.errors import EngramError
from engram.ledger import (
    RunRecord,
    current_commit,
    new_run_id,
    read_record,
    record_path,
    software_versions,
    utc_now,
    write_record,
)
from engram.recipes import Recipe, load_recipe
from engram.train.build import build_method, choose_device, resolve_method
from engram.train.checkpoint import load, load_method
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
    store: Store | None = None,
    **changes: Any,
) -> tuple[RunRecord, tuple[Result, ...]]:
    """Answer a recipe's protocols with a checkpoint folder, or with an untrained method by name and a recipe.

    ``changes`` replace fields of the protocol: n_way, n_shot, n_query, n_sequences, slot_order, stream_length, ...
    """
    where = choose_device(device)
    method_of, chosen, trained_by = _resolve(str(model), recipe)
    opened = store or open_split(chosen.data.dataset, split, data)
    protocols = _protocols(chosen, split, changes)
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
        trained_by=trained_by,
        note=note,
    )
    stem = record_path(results, record).with_suffix("").name
    evaluations = []
    for i, test in enumerate(tests):
        test.save_tasks(results / f"tasks/{stem}.{i}.npz", predictions)
        evaluations.append(test.to_evaluation(f"tasks/{stem}.{i}.npz"))
    record = replace(record, evaluations=evaluations)
    write_record(results, record)
    return record, tests


def _resolve(model: str, recipe: str | None) -> tuple[Any, Recipe, str]:
    """How to make the method once the store is open, the recipe, and the training run behind it."""
    if Path(model).exists():
        checkpoint = load(Path(model), which="best")
        chosen = load_recipe(recipe) if recipe else checkpoint.recipe
        if chosen.method != checkpoint.state.method:
            raise EngramError(
                f"{model} is a checkpoint of {checkpoint.state.method} but the recipe {chosen.name} "
                f"is for {chosen.method}: give a recipe of {checkpoint.state.method}"
            )

        def from_checkpoint(store: Store) -> Method:
            if tuple(checkpoint.state.image_shape) != store.image_shape:
                raise EngramError(
                    f"{model} was trained on images of {checkpoint.state.image_shape} but {store.info.dataset} has "
                    f"{store.image_shape}: "
                    f"give a recipe for the dataset it was trained on"
                )
            return load_method(checkpoint, torch.device("cpu"))

        return from_checkpoint, chosen, checkpoint.state.run_id
    kind = resolve_method(model)
    if kind.card.trainable:
        raise EngramError(
            f"'{model}' is no checkpoint folder, and the method of that name must be trained first: "
            f"engram train {model}/..."
        )
    if recipe is None:
        raise EngramError(
            f"engram bench {model} needs --recipe to say which data and tasks, such as --recipe proto_net/glyphs_5w1s"
        )
    base = load_recipe(recipe)
    chosen = replace(base, method=model, method_settings={}, backbone="flatten", backbone_settings={}, paper=None)
    return (lambda store: build_method(chosen, store.image_shape, torch.device("cpu"))), chosen, ""


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
            if a.tasks_digest != b.tasks_digest:
                continue
            correct = [_correct(Path(p), e.tasks_file) for p, e in ((first, a), (second, b))]
            rows.append({"protocol": a.protocol, **paired_difference(*correct)})
    if not rows:
        raise EngramError(f"{first} and {second} have no tasks in common: bench both under one protocol first")
    return rows


def _correct(record: Path, file: str) -> np.ndarray:
    try:
        with np.load(record.parent / file) as arrays:
            return arrays["correct"].astype(np.float64)
    except (OSError, KeyError, ValueError) as error:
        raise EngramError(
            f"the per-task results {record.parent / file} of {record.name} cannot be read: bench the model again"
        ) from error
