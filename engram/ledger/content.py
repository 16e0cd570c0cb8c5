"""What the tables of a record hold: known keys of the right kind, so that one odd record cannot stop a report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from engram.protocol import Protocol
from engram.recipes.schema import DataSettings, TestSettings, TrainSettings
from engram.structure import check_types

if TYPE_CHECKING:
    from engram.ledger.records import Evaluation, RunRecord

Number = int | float | None
RUN_ID = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""it is part of a file's name"""


@dataclass(frozen=True)
class RecipeTables:
    """`Recipe.to_dict`."""

    name: str
    method: str
    description: str
    backbone: str
    backbone_weights: str
    backbone_settings: dict[str, Any]
    method_settings: dict[str, Any]
    data: dict[str, Any]
    train: dict[str, Any]
    test: dict[str, Any]
    paper: dict[str, Any] | None
    """of records from before published figures stood in the studies"""


@dataclass(frozen=True)
class Curves:
    """Of a run, as they were written: whole numbers stay whole, and what was not finite is None."""

    curves: dict[str, list[int | float | None]]


@dataclass(frozen=True)
class Training:
    """`RunRecord.training`."""

    best_accuracy: Number
    best_iteration: int
    captured: bool
    chosen: str
    card: dict[str, Any]
    device_use: dict[str, int | float]
    features: str
    iterations: int
    kernels: str
    parameters: int
    precision: str
    processes: int
    resumed_from: str
    seconds: Number
    stopped_by: str
    tasks_per_second: Number
    validation_seconds: Number


@dataclass(frozen=True)
class Metrics:
    """`Evaluation.metrics`."""

    accuracy: Number
    interval: Number
    accuracy_by_position: list[int | float | None]
    interval_by_position: list[int | float | None]
    brier: Number
    ece: Number
    nll: Number
    edge_accuracy: Number
    n_queries: int
    n_sequences: int
    n_tasks: int
    query_pairs: dict[str, int | float | None] | None
    reliability: dict[str, list[int | float | None]]
    stream: dict[str, Any]


@dataclass(frozen=True)
class FindingTable:
    """One of `RunRecord.audit`."""

    probe: str
    question: str
    kind: str
    verdict: str
    unit: str
    detail: str
    declared: bool
    effect: Number
    bound: Number


def check_content(record: RunRecord) -> None:
    """EngramError or ValueError at the first value of a known key that is of another kind."""
    if not RUN_ID.fullmatch(record.run_id) or not RUN_ID.fullmatch(record.trained_by or "-"):
        raise ValueError("its run_id, or that of the run it was trained by, is no name")
    if record.revision < 0:
        raise ValueError(f"its revision is {record.revision}")
    check_types({"curves": record.curves}, Curves, "curves")
    _check_recipe(record.recipe)
    check_types(record.training, Training, "training")
    check_types(record.audit_protocol, Protocol, "audit_protocol")
    for finding in record.audit:
        check_types(finding, FindingTable, "audit")
    for evaluation in record.evaluations:
        _check_evaluation(evaluation)


def _check_recipe(recipe: Mapping[str, Any]) -> None:
    """Of the right kinds; and where it says how to train, it says the seed."""
    check_types(recipe, RecipeTables, "recipe")
    if recipe.get("train") and "seed" not in recipe["train"]:
        raise ValueError("the [train] of its recipe does not say its seed")
    for name, kind in (("data", DataSettings), ("train", TrainSettings), ("test", TestSettings)):
        check_types(recipe.get(name) or {}, kind, f"recipe [{name}]")


def _check_evaluation(evaluation: Evaluation) -> None:
    check_types(evaluation.protocol, Protocol, "protocol")
    check_types(evaluation.metrics, Metrics, "metrics")
    place = PurePosixPath(evaluation.tasks_file)
    if place.is_absolute() or ".." in place.parts or "\0" in evaluation.tasks_file:
        raise ValueError(f"its tasks_file {evaluation.tasks_file!r} lies elsewhere")
