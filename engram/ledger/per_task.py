"""Accuracy of every task of an evaluation, in a file beside its record, of which paired comparisons are made; and the
records that count: readable, as they were written, and in agreement with their own per-task results.

A record that fails is named and left out; it is never averaged in. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engram.card import revisions_of
from engram.errors import EngramError
from engram.files import UNPACKING, check_zip, open_regular
from engram.ledger.records import Evaluation, RunRecord, read_ledger, record_path
from engram.recipes.schema import digest_of

MOST_LEVELS = 256
MOST_BYTES = 2**30
"""of all arrays beside a record"""


def write_tasks(path: Path, correct: np.ndarray, more: Mapping[str, np.ndarray] | None = None) -> None:
    """``correct`` (sequences, steps, 1) float32 and other arrays, compressed.

    An accuracy of Q queries has Q + 1 values at most: they are kept once, and a byte for each task that names one.
    """
    levels, names = np.unique(correct.astype(np.float32), return_inverse=True)
    arrays: dict[str, Any] = {"levels": levels, "level_of_task": names.reshape(correct.shape).astype(np.uint8)}
    if len(levels) > MOST_LEVELS:
        arrays = {"correct": correct.astype(np.float32)}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **(arrays | dict(more or {})))


def read_tasks(path: Path) -> np.ndarray:
    """(sequences, steps, 1) float64. Raises OSError, KeyError, ValueError or BadZipFile where the file is none."""
    with open_regular(path) as stream:
        check_zip(stream, MOST_BYTES)
        arrays = np.load(stream)
        if "correct" in arrays:
            return np.asarray(arrays["correct"], np.float64)
        return np.asarray(arrays["levels"][arrays["level_of_task"]], np.float64)


def correctness(evaluation: Evaluation, folder: Path) -> np.ndarray:
    """(sequences, steps, queries) shares of right answers, from the file beside the record in ``folder``."""
    path = folder / evaluation.tasks_file
    try:
        return read_tasks(path)
    except (OSError, KeyError, ValueError, IndexError, TypeError, MemoryError, EOFError, *UNPACKING) as error:
        why = getattr(error, "strerror", None) or error
        raise EngramError(
            f"the per-task results {path} cannot be read ({why}): restore them from git or bench the model again"
        ) from error


def readable_tasks(evaluation: Evaluation, folder: Path) -> bool:
    """Whether it names no file of per-task results, or one that is there and whole."""
    try:
        return not evaluation.tasks_file or bool(correctness(evaluation, folder).size)
    except EngramError:
        return False


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
