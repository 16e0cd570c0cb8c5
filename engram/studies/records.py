"""Records a study may count: readable, as they were written, and in agreement with their own per-task results.

A record that fails is named and left out; it is never averaged in.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engram.errors import EngramError
from engram.evaluation.per_task import read_tasks
from engram.ledger import Evaluation, RunRecord, read_ledger, record_path
from engram.recipes.schema import digest_of
from engram.revisions import revisions_of

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
    except (KeyError, TypeError, AttributeError):
        return "its recipe is not whole"
    if digest != record.recipe_digest:
        return f"its recipe has the digest {digest} but it says {record.recipe_digest}"
    if record.version > 1 and record.evaluations and record.builds_on and not record.start:
        return f"it builds on {record.builds_on} but does not say by which digest"
    known = len(revisions_of(record.method, record.recipe["method_settings"]))
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


def correctness(evaluation: Evaluation, folder: Path) -> np.ndarray:
    """(sequences, steps, queries) shares of right answers, from the file beside the record."""
    path = folder / evaluation.tasks_file
    try:
        return read_tasks(path)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise EngramError(f"its per-task results {path} cannot be read ({error}): restore them from git") from error


def conflicts(records: Sequence[RunRecord]) -> list[str]:
    """A sentence for each pair of finished records with equal digest and questions but different results.

    Such runs differ in what a digest does not hold: the device, or the minutes of a time box. The newest counts.
    """
    newest: dict[tuple[Any, ...], tuple[RunRecord, Evaluation]] = {}
    sentences = []
    for record in sorted((r for r in records if r.status == "finished"), key=lambda r: (r.started, r.run_id)):
        for evaluation in record.evaluations:
            asked = json.dumps(evaluation.protocol, sort_keys=True), evaluation.tasks_digest
            questions = (record.recipe_digest, record.origin, *asked)
            before = newest.get(questions)
            newest[questions] = (record, evaluation)
            if before and before[1].metrics.get("accuracy") != evaluation.metrics.get("accuracy"):
                figures = [100 * float(e.metrics["accuracy"]) for e in (before[1], evaluation)]
                sentences.append(
                    f"runs {before[0].run_id} and {record.run_id} of {record.recipe_name} have the same digest and "
                    f"questions but scored {figures[0]:.2f} and {figures[1]:.2f} %: the newer one counts"
                )
    return sentences
