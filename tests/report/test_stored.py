"""Training from disk, and the fast path beside the plain one, as tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from result_records import make_evaluation, make_record, rows_of

from engram.ledger import RunRecord
from engram.report.stored import paths_table, store_section


def content(device: str, ratio: bool, day: str = "2026-01-01") -> dict[str, Any]:
    step = {"step_ms": 8.0, "images_per_step": 800, "steps": 2000, "read_gb": 34.5, "resident_mib": 2773.0}
    recipe = {"disk": step} | ({"memory": {"step_ms": 7.0}} if ratio else {})
    rates = {"build_s": 64.2, "build_resident_mib": 190.0, "open_s": 0.02}
    rates |= {"disk_alone_gb_per_s": 2.5} | ({"a/b, disk / memory": 1.14} if ratio else {})
    setting = {"n_images": 448695, "store_gb": 9.5, "recipes": {"a/b": recipe}}
    return {"device": device, "measured": day, "load_average": 0.1, "rates": rates, "setting": setting}


def test_the_newest_of_each_device_with_a_sentence_on_its_store() -> None:
    files = [(content("H200", True), "old"), (content("H200", True, "2026-01-02"), "new"), (content("cpu", False), "c")]
    _, _, gpu, cpu, _, first, _, second = store_section(files, "speed").splitlines()
    assert gpu == "| `a/b` | H200 | 7.00 | 8.00 | 1.14 | 800 | 2,000 | 34.50 | 2,773 | [2026-01-02](speed/new) |"
    assert cpu == "| `a/b` | cpu |  | 8.00 |  | 800 | 2,000 | 34.50 | 2,773 | [2026-01-01](speed/c) |"
    assert first.startswith(
        "H200: 448,695 pictures, 9.50 GB, were built in 64 s with 190 MiB resident and opened in 0.020"
    )
    assert second.startswith("cpu: ") and "2.50 GB/s" in second


def test_nothing_measured_is_said() -> None:
    assert store_section([], "speed") == "Not measured yet."


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
    table = paths_table([fast, old, plain, other], "results/runs", tmp_path)
    assert [(pair.fast, pair.plain) for pair in table.full] == [(fast, plain)]
    (row,) = rows_of(table.markdown())
    assert row[1] == "1,500" and row[5] == "+10.00 ± 0.00" and "(results/runs/" in row[3]


def test_without_a_pair_there_is_no_table(tmp_path: Path) -> None:
    records = [run(tmp_path, 1, 0.5, None), run(tmp_path, 2, 0.5, True), run(tmp_path, 3, 0.5, False, seed=7)]
    assert paths_table(records, "r", tmp_path).markdown() == "Not measured yet."
