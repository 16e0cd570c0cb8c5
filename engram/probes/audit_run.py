"""Auditing a model by name or checkpoint, with a run record: what `engram audit` calls."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from engram.data.store import Store
from engram.evaluation.source import resolve_model
from engram.ledger import RESULTS, RunRecord, check_results_folder, write_record
from engram.machine.device import choose_device, kept_memory
from engram.machine.failures import explained
from engram.models.features import open_stores
from engram.probes.audit import AuditReport, audit
from engram.recipes import Recipe
from engram.recipes.protocols import protocols_of

OF_RECIPE = ("labelled_fraction", "drop_unlabelled", "hidden_labels_shown")
"""keys of a protocol that an audit takes from the recipe alone"""


@dataclass(frozen=True)
class AuditRun:
    record: RunRecord
    record_file: Path
    report: AuditReport


def audit_model(
    model: str | Path,
    *,
    recipe: str | None = None,
    data: str | Path | None = None,
    results: str | Path = RESULTS,
    device: str = "auto",
    split: str = "test",
    n_way: int | None = None,
    n_shot: int | None = None,
    n_query: int | None = None,
    stream_length: int = 8,
    n_sequences: int = 100,
    names: Literal["anonymous", "named"] | None = None,
    pool_classes: int | None = None,
    quick: bool = False,
    note: str = "",
    features: str | Path | None = None,
    store: Store | None = None,
) -> AuditRun:
    """Put every probe to a checkpoint folder, or to an untrained method by name and a recipe; append a run record.

    None takes the recipe's value. Streams are listed in the slot order the model's own recipe trains in.
    """
    where, results = choose_device(device), Path(results)
    source = resolve_model(str(model), recipe, features is not None)
    check_results_folder(results)
    opened = store or open_stores(source.asked.data.dataset, (split,), data, features)[split]
    setting = _setting(
        source.asked,
        {"n_way": n_way, "n_shot": n_shot, "n_query": n_query, "names": names, "pool_classes": pool_classes},
    )
    blank, clock = source.blank_record("audit", where, opened), time.monotonic()
    with explained(source.recipe, where), kept_memory():
        method = source.build(opened).to(where)
        on_device = opened.to(where) if where.type == "cuda" else opened
        report = audit(
            method, on_device, **setting, stream_length=stream_length, n_sequences=n_sequences, device=where,
            train_order=source.recipe.data.slot_order, chosen_on=source.chosen_on, quick=quick,
        )  # fmt: skip
    record = replace(
        blank,
        seconds=round(time.monotonic() - clock, 3),
        training={"features": opened.info.source} if features else {},
        audit=report.to_dicts(),
        audit_protocol=report.protocol.to_dict(),
        note=note,
    )
    return AuditRun(record, write_record(results, record), report)


def _setting(recipe: Recipe, given: dict[str, Any]) -> dict[str, Any]:
    """What the recipe tests with, its first number of queries among it, and what is given in its place."""
    asked = protocols_of(recipe, **given)[0]
    return {key: getattr(asked, key) for key in (*given, *OF_RECIPE)}
