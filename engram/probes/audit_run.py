"""Auditing a model by name or checkpoint, with a run record: what `engram audit` calls."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from engram.data.store import Store
from engram.evaluation.source import model_name, resolve_model
from engram.ledger import RunRecord, check_results_folder, write_record
from engram.machine.device import choose_device, kept_memory
from engram.machine.failures import explained
from engram.models.features import open_stores
from engram.options import DRAWN, AuditKeywords, AuditOptions
from engram.probes.audit import AuditReport, audit
from engram.recipes.protocols import protocols_of

OF_RECIPE = tuple(key for key in DRAWN if key not in ("stream_length", "n_sequences", "seed"))
"""keys of a protocol for which the recipe speaks where a call does not"""


@dataclass(frozen=True)
class AuditRun:
    """What an audit by name or checkpoint leaves: its record, where that lies, and the findings."""

    record: RunRecord
    record_file: Path
    report: AuditReport


def audit_model(model: str | Path = "", *, store: Store | None = None, **options: Unpack[AuditKeywords]) -> AuditRun:
    """Put every probe to a checkpoint folder, or to an untrained method by name and a recipe; append a run record.

    Options are those of `engram audit`, `engram.options.AuditOptions`; None takes the recipe's value. Streams are
    listed in the slot order the model's own recipe trains in. ``store`` is asked in place of the dataset's split.
    """
    how = AuditOptions.read("audit", options, also=DRAWN)
    where, results = choose_device(how.device), Path(how.results)
    source = resolve_model(model_name(model, how.method), how.recipe, how.features is not None)
    check_results_folder(results)
    opened = store or open_stores(source.asked.data.dataset, (how.split,), how.data, how.features)[how.split]
    tested = protocols_of(source.asked)[0]
    setting: dict[str, Any] = {key: getattr(tested, key) for key in OF_RECIPE}
    setting |= {key: value for key, value in options.items() if key in DRAWN and value is not None}
    blank, clock = source.blank_record("audit", where, opened), time.monotonic()
    with explained(source.recipe, where), kept_memory():
        method = source.build(opened).to(where)
        on_device = opened.to(where) if where.type == "cuda" else opened
        report = audit(
            method, on_device, device=where, train_order=source.recipe.data.slot_order, chosen_on=source.chosen_on,
            quick=how.quick, **setting,
        )  # fmt: skip
    record = replace(
        blank,
        seconds=round(time.monotonic() - clock, 3),
        training={"features": opened.info.source} if how.features else {},
        audit=report.to_dicts(),
        audit_protocol=report.protocol.to_dict(),
        note=how.note,
    )
    return AuditRun(record, write_record(results, record), report)
