"""What the quickstart prints, from its recorded runs: ``<!-- quickstart:begin 20-way -->`` in README."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engram.errors import EngramError, nearest
from engram.ledger import RunRecord
from engram.report.contents import QuickstartRow
from engram.report.rows import result_rows

RECIPES = {
    "ProtoNet": "proto_net/glyphs_quick",
    "CML-BGNN, no history": "cml_bgnn/glyphs_quick_no_history",
    "CML-BGNN, the paper's history": "cml_bgnn/glyphs_quick",
    "Content memory": "content_memory/glyphs_quick",
}
FLOORS = {"chance": "chance", "pixel nearest centroid": "pixel_centroid"}
"""methods that need no training"""
SETTINGS: dict[str, dict[str, Any]] = {
    "5-way 1-shot": {"n_way": 5, "n_sequences": 1200},
    "20-way 1-shot": {"n_way": 20, "n_sequences": 200},
}
SINGLE = {"dataset": "glyphs", "stream_length": 1, "n_query": 1}
NAMES = {setting.split()[0]: setting for setting in SETTINGS}
NOT_RUN = "Not run yet."


def check_quickstart_section(name: str, where: str, records: Sequence[RunRecord]) -> None:
    if name not in NAMES:
        raise EngramError(f"{where}: 'quickstart:begin {name}' names no known setting{nearest(name, NAMES)}")


def quickstart_section(name: str, records: Sequence[RunRecord], runs: str) -> str:
    """The rows of one setting as plain text, from the newest records."""
    rows = recorded_rows(records, NAMES[name])
    if not rows:
        return NOT_RUN
    cells = [(NAMES[name], "accuracy, %", "training")]
    for row in rows:
        trained = "none" if row.seconds is None else f"{row.seconds:.0f} s"
        cells.append((row.system, f"{100 * row.accuracy:.1f} ± {100 * row.interval:.1f}", trained))
    lines = [f"{system:<30}  {accuracy:>11}  {trained:>8}" for system, accuracy, trained in cells]
    return "\n".join(("```text", *lines, "```"))


def recorded_rows(records: Sequence[RunRecord], setting: str) -> list[QuickstartRow]:
    """A row for each system of the quickstart that has a finished answer to the setting."""
    asked = {**SINGLE, **SETTINGS[setting]}
    answers = [r for r in result_rows(records) if all(r.protocol.get(key) == value for key, value in asked.items())]
    rows = []
    for system, name in {**FLOORS, **RECIPES}.items():
        found = [r for r in answers if r.evaluation and name in (r.record.method, r.record.recipe_today)]
        if found:
            newest = max(found, key=lambda row: row.record.started)
            assert newest.evaluation is not None
            metrics, seconds = newest.evaluation.metrics, newest.trained.get("seconds")
            rows.append(QuickstartRow(system, setting, metrics["accuracy"], metrics["interval"], seconds=seconds))
    return rows
