"""Made-up records of streams: right at a known rate in the last quarter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from result_records import make_evaluation, make_record

from engram.ledger import RunRecord

CONTENT, PROTO = "cml_bgnn/mini_5w1s_content_named", "proto_memory/mini_5w1s_frozen"
INDUCTIVE = "cml_bgnn/mini_5w1s_content_named_inductive"
ANONYMOUS = "cml_bgnn/mini_5w1s_content_anonymous"


def stream_record(
    folder: Path,
    number: int,
    recipe: str,
    late: float,
    length: int = 8,
    method_settings: dict[str, Any] | None = None,
    **changes: Any,
) -> RunRecord:
    """A record whose last quarter is right at the rate ``late``, exactly in every stream, and 0.4 before."""
    protocol = {"n_query": 15, "stream_length": length, "names": "named", "dataset_digest": "d", **changes}
    bins = {"accuracy": [0.5, late], "interval": [0.01, 0.01], "n": [40, 3]}
    stream = {"last_quarter": late, "last_quarter_interval": 0.004, "n_streams": 40}
    stream |= {"by_encounters": {"bin": ["0", "1"], **bins}, "by_gap": {"bin": ["1", "5-8"], **bins}}
    evaluation = make_evaluation(0.5, **protocol)
    correct = np.full((40, length, 10), 0.4)
    correct[:, length * 3 // 4 :] = late
    method, file = recipe.split("/")[0], f"tasks/{number}.npz"
    (folder / "tasks").mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / file, correct=correct)
    evaluation = replace(evaluation, metrics={**evaluation.metrics, "stream": stream}, tasks_file=file)
    method = "content_memory" if "content" in recipe else method
    values = {"backbone": "conv4", "method_settings": method_settings or {}}
    record = make_record(number, evaluation, kind="bench", method=method, recipe_name=recipe, recipe=values)
    return replace(record, training={"features": "features of conv4"})
