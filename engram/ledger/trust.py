"""Records that count: readable, as they were written, and in agreement with their own per-task results.

A record that fails is named and left out; it is never averaged in.
"""

from __future__ import annotations

from pathlib import Path

from engram.card import revisions_of
from engram.errors import EngramError
from engram.ledger.per_task import correctness
from engram.ledger.records import RunRecord, read_ledger, record_path
from engram.recipes.schema import digest_of

ROUNDING = 1e-3
"""per-task results may be kept in half precision"""


def trusted_records(folder: Path) -> tuple[list[RunRecord], list[str]]:
    """Records that count, oldest first, and a sentence for each that does not."""
    records, problems = read_ledger(folder)
    kept = []
    for record in records:
        if problem := _problem(record, folder):
            problems.append(f"the run record {record_path(folder, record)} is left out: {problem}")
        else:
            kept.append(record)
    return kept, problems


def _problem(record: RunRecord, folder: Path) -> str:
    """What a hand edit leaves behind where there is no seal yet; "" for a record in order."""
    try:
        digest = digest_of(record.recipe)
        known = len(revisions_of(record.method, record.recipe["method_settings"]))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return "its recipe is not whole"
    if digest != record.recipe_digest:
        return f"its recipe has the digest {digest} but it says {record.recipe_digest}"
    if record.version > 1 and record.evaluations and record.builds_on and not record.start:
        return f"it builds on {record.builds_on} but does not say by which digest"
    if record.revision > known and ":" not in record.method:
        return f"it is of revision {record.revision} of {record.method} but this Engram knows {known}: update it"
    for evaluation in (e for e in record.evaluations if e.tasks_file):
        try:
            accuracy = correctness(evaluation, folder).mean()
        except EngramError as error:
            return str(error)
        stated = evaluation.metrics.get("accuracy")
        if stated is None or abs(accuracy - stated) > ROUNDING:
            return f"it states an accuracy of {stated} but its per-task results give {accuracy:.6f}"
    return ""
