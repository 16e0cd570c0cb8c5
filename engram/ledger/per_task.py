"""Accuracy of every task of an evaluation, in a file beside its record: paired comparisons are made of it. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engram.errors import EngramError
from engram.files import UNPACKING, check_zip, open_regular
from engram.ledger.records import Evaluation

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
