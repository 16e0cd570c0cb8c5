"""Made-up records of recipes: per-task results with a known mean beside each, as a ledger has them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engram.card import revisions_of
from engram.ledger import Evaluation, Ledger, RunRecord, record_path, trusted_records, write_record
from engram.recipes import Recipe, load_recipe
from engram.recipes.protocols import protocols_of
from engram.report.cells import Filled, fill
from engram.studies import load_study
from engram.studies.jobs import with_seed


def add_record(
    folder: Path,
    recipe: str | Recipe,
    accuracy: float = 0.6,
    *,
    seed: int = 111,
    ask: dict[str, Any] | None = None,
    sequences: int = 40,
    rise: float = 0.0,
    number: int = 0,
    **changes: Any,
) -> RunRecord:
    """Append a finished training run, or with ``ask`` a bench; ``rise`` is added from the first to the last task."""
    chosen = with_seed(load_recipe(recipe) if isinstance(recipe, str) else recipe, seed)
    record = _blank(chosen, seed, number, "bench" if ask is not None else "train", changes)
    evaluations = []
    for place, protocol in enumerate(p.to_dict() for p in protocols_of(chosen, **(ask or {}))):
        correct = _correct(protocol, accuracy, rise, sequences, seed)
        file = f"tasks/{record_path(folder, record).stem}.{place}.npz"
        (folder / "tasks").mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / file, correct=correct)
        evaluations.append(_evaluation(protocol, correct, file))
    final = RunRecord(**{**vars(record), "evaluations": evaluations if "status" not in changes else []})
    write_record(folder, final)
    return final


def _blank(recipe: Recipe, seed: int, number: int, kind: str, changes: dict[str, Any]) -> RunRecord:
    rng = np.random.default_rng([seed, number, len(recipe.name)])
    steps = list(range(500, 3001, 500))
    noise = rng.normal(0, 0.01, len(steps))
    curves = {
        "iteration": steps,
        "validation_accuracy": [0.3 + 0.04 * n + e for n, e in enumerate(noise)],
        "validation_interval": [0.01] * len(steps),
        "validation_edge_accuracy": [0.6 + 0.03 * n for n in range(len(steps))],
    }
    training = {
        "iterations": recipe.train.iterations,
        "seconds": 180.0,
        "best_iteration": 2000,
        "card": {},
        "parameters": 10_000,
    }
    mark = hashlib.sha256(f"{recipe.name}{seed}{kind}{number}".encode()).hexdigest()[:6]
    values: dict[str, Any] = {
        "run_id": f"20260101-{number:06d}-{mark}",
        "kind": kind,
        "status": "finished",
        "method": recipe.method,
        "recipe_name": recipe.name,
        "recipe": json.loads(json.dumps(recipe.to_dict())),
        "recipe_digest": recipe.digest,
        "seed": seed,
        "started": f"2026-01-01T00:00:{number % 60:02d}Z",
        "seconds": 200.0,
        "commit": "abc",
        "device": "NVIDIA H200",
        "versions": {},
        "curves": curves if kind == "train" else {},
        "training": training if kind == "train" else {},
        "start": {"weights": "ab12"} if recipe.backbone_weights else {},
        "revision": len(revisions_of(recipe.method, recipe.method_settings)),
    }
    return RunRecord(**{**values, **changes})


def _correct(protocol: dict[str, Any], accuracy: float, rise: float, sequences: int, seed: int) -> np.ndarray:
    """(sequences, T, queries) of 0 and 1: tasks differ in difficulty in the same way for every system and seed."""
    length, queries = protocol["stream_length"], protocol["n_way"] * protocol["n_query"]
    tasks = np.random.default_rng(length * 1000 + queries)
    difficulty = tasks.normal(0, 0.1, (sequences, 1, 1))
    level = accuracy + np.linspace(0, rise, length)[None, :, None] + difficulty
    draws = np.random.default_rng([seed, int(1e6 * accuracy)]).random((sequences, length, queries))
    return (draws < level).astype(np.uint8)


def _evaluation(protocol: dict[str, Any], correct: np.ndarray, file: str) -> Evaluation:
    by_task = correct.mean(-1)
    metrics: dict[str, Any] = {
        "accuracy": float(by_task.mean()),
        "interval": float(1.96 * by_task.mean(1).std(ddof=1) / np.sqrt(len(by_task))),
        "accuracy_by_position": by_task.mean(0).tolist(),
        "interval_by_position": (1.96 * by_task.std(0, ddof=1) / np.sqrt(len(by_task))).tolist(),
        "nll": 0.9,
        "brier": 0.5,
        "ece": 0.05,
        "reliability": {"confidence": [0.3, 0.7], "accuracy": [0.35, 0.6], "weight": [0.5, 0.5]},
        "edge_accuracy": 0.8,
    }
    if protocol["stream_length"] > 1:
        metrics["stream"] = {
            "last_quarter": float(by_task[:, by_task.shape[1] * 3 // 4 :].mean()),
            "last_quarter_interval": 0.01,
            "by_encounters": {"bin": ["0", "1"], "accuracy": [0.5, 0.6], "interval": [0.01, 0.01], "n": [40, 40]},
            "by_gap": {"bin": ["1", "2"], "accuracy": [0.6, 0.58], "interval": [0.01, 0.01], "n": [40, 40]},
            "n_streams": len(correct),
        }
    return Evaluation({**protocol, "dataset_digest": "d", "seed": 0}, f"t{protocol['n_sequences']}", metrics, 2.0, file)


def write_study(path: Path, *rows: str, extra: Sequence[str] = ()) -> Path:
    """A small study of the user's; each row is the inside of a [[row]] table."""
    lines = ['title = "mine"', 'columns = ["1-shot"]', *extra]
    for row in rows:
        lines += ["[[row]]", row]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def cells_of(folder: Path, name: str) -> dict[tuple[str, str], Filled]:
    """A study filled from the records of a folder."""
    return fill(load_study(name), Ledger(trusted_records(folder)[0]), folder)
