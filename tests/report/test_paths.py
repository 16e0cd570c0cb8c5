"""Fast and plain training are paired by recipe, seed and commit, and compared task by task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from result_records import make_evaluation, make_record, rows_of

from engram.ledger import RunRecord
from engram.report.paths import pairs, paths_table


def run(folder: Path, number: int, accuracy: float, captured: bool | None, **changes: object) -> RunRecord:
    correct = np.full((20, 1, 10), accuracy)
    (folder / "tasks").mkdir(exist_ok=True)
    np.savez_compressed(folder / f"tasks/{number}.npz", correct=correct)
    evaluation = replace(make_evaluation(accuracy), tasks_file=f"tasks/{number}.npz")
    training = {"iterations": 1500} | ({} if captured is None else {"captured": captured})
    return make_record(number, evaluation, training=training, **changes)


def test_the_newest_fast_and_plain_run_are_subtracted(tmp_path: Path) -> None:
    old, fast = run(tmp_path, 1, 0.1, True), run(tmp_path, 3, 0.6, True)
    plain, other = run(tmp_path, 2, 0.5, False), run(tmp_path, 4, 0.9, False, commit="later")
    assert list(pairs([fast, old, plain, other])) == [(fast, plain)]
    (row,) = rows_of(paths_table([fast, old, plain, other], "results/runs", tmp_path))
    assert row[1] == "1,500" and row[5] == "+10.00 ± 0.00" and "(results/runs/" in row[3]


def test_without_a_pair_there_is_no_table(tmp_path: Path) -> None:
    records = [run(tmp_path, 1, 0.5, None), run(tmp_path, 2, 0.5, True), run(tmp_path, 3, 0.5, False, seed=7)]
    assert paths_table(records, "r", tmp_path) == ""
