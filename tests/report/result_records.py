"""Made-up records of results, and a Markdown table read back."""

from __future__ import annotations

import re
from typing import Any

from engram.ledger import Evaluation, RunRecord

TEST = {"n_way": 5, "n_shot": 1, "n_query": [1], "stream_length": 8, "labelled_fraction": 1.0, "slot_order": "shuffled"}
DATA, TRAIN = {"dataset": "miniimagenet"}, {"seed": 111}
HEADING = re.compile(r"\| \*\*[^|]*\*\* \|(  \|)+")
RECIPE = {"backbone": "conv4", "data": DATA, "test": TEST, "train": TRAIN}


def make_evaluation(accuracy: float, **changes: Any) -> Evaluation:
    protocol = {
        "dataset": "miniimagenet",
        "split": "test",
        "n_way": 5,
        "n_shot": 1,
        "n_query": 1,
        "query_balance": "balanced",
        "labelled_fraction": 1.0,
        "slot_order": "shuffled",
        "stream_length": 8,
        "pool_classes": 0,
        "names": "anonymous",
        "batch_norm": "running",
        "seed": 0,
        **changes,
    }
    length = protocol["stream_length"]
    metrics = {
        "accuracy": accuracy,
        "interval": 0.0042,
        "ece": 0.0314,
        "accuracy_by_position": [accuracy + 0.001 * t for t in range(length)],
        "interval_by_position": [0.011] * length,
    }
    return Evaluation(protocol, tasks_digest="t0", metrics=metrics)


def make_record(number: int, *evaluations: Evaluation, **changes: Any) -> RunRecord:
    values: dict[str, Any] = {
        "run_id": f"20260101-0000{number:02d}-abcdef",
        "kind": "train",
        "status": "finished",
        "method": "cml_bgnn",
        "recipe_name": "cml_bgnn/mini_5w1s",
        "recipe": RECIPE,
        "recipe_digest": "d0d0d0d0",
        "seed": 111,
        "started": f"2026-01-01T00:00:{number:02d}Z",
        "seconds": 800.0,
        "commit": "c0ffee",
        "device": "H200",
        "versions": {},
        "evaluations": list(evaluations),
        "training": {"iterations": 70000, "seconds": 738.0},
        "revision": 1,
    }
    return RunRecord(**{**values, **changes})


def rows_of(table: str) -> list[list[str]]:
    """Rows that are no headings of a group."""
    lines = [line for line in table.splitlines()[2:] if line.startswith("|") and not HEADING.fullmatch(line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
