"""Runs with a moving average by their validation accuracy, heads by the features they are trained on, and the fast
path beside the plain one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from result_records import make_evaluation, make_record, rows_of

from engram.ledger import RunRecord
from engram.recipes import load_recipe
from engram.report.results import NO_RUNS
from engram.report.trials import heads_section, paths_table, trials_section

CURVES = {
    "iteration": [10, 20, 40],
    "train_accuracy": [0.2, 0.5, 0.9],
    "validation_accuracy": [0.3, 0.64, 0.6],
    "validation_accuracy_last": [0.29, 0.6, 0.55],
    "validation_accuracy_average": [0.3, 0.64, 0.6],
}


def run(name: str, started: str, **changes: object) -> RunRecord:
    recipe = load_recipe(name)
    training = {"iterations": 40, "seconds": 90.0}
    what = (recipe.method, name, recipe.to_dict(), recipe.digest)
    how = {"curves": CURVES, "training": training}
    record = RunRecord(started, "train", "finished", *what, 111, started, 90.0, "", "", {}, **how)  # type: ignore[arg-type]
    return replace(record, **changes)  # type: ignore[arg-type]


def test_the_newest_run_of_each_recipe_with_its_best_and_its_end() -> None:
    strong, conv4 = "stage_one/mini_resnet12_wide_strong", "stage_one/mini_conv4_distilled"
    worse = {**CURVES, "validation_accuracy": [0.3, 0.3, 0.3]}
    text = trials_section([run(strong, "2"), run(conv4, "1"), run(strong, "1", curves=worse)], "runs")
    lines = text.splitlines()
    assert [name for name in (conv4, strong) for line in lines if name in line] == [conv4, strong]
    assert "| 40 | 1.5 | 90.0 | 55.0 | 60.0 | 64.0 | 50 % |  |" in next(line for line in lines if strong in line)


def test_the_digest_of_the_weights_is_that_of_the_run_or_of_a_bench_of_it() -> None:
    strong, conv4 = "stage_one/mini_resnet12_wide_strong", "stage_one/mini_conv4_distilled"
    stated = {"iterations": 40, "seconds": 90.0, "weights": "c0ffee"}
    bench = run(strong, "3", kind="bench", trained_by="1", training={"weights": "beef"})
    lines = trials_section([run(strong, "1"), bench, run(conv4, "2", training=stated)], "runs").splitlines()
    assert next(line for line in lines if conv4 in line).endswith("| 50 % | `c0ffee` |")
    assert next(line for line in lines if strong in line).endswith("| 50 % | `beef` |")
    seen = replace(bench, training={}, start={"features": "feed"})
    assert "| `feed` (features) |" in trials_section([run(strong, "1"), seen], "runs")
    assert "`feed`" not in trials_section([run(strong, "1"), seen, bench], "runs")


def test_failed_runs_other_methods_and_runs_without_an_average_do_not_count() -> None:
    name = "stage_one/mini_resnet12_wide_strong"
    plain = {key: curve for key, curve in CURVES.items() if not key.endswith("average")}
    others = [
        run(name, "1", status="failed"),
        run(name, "2", curves=plain),
        run("proto_net/mini_5w1s", "3"),
        run("stage_one/own", "4"),
    ]
    assert trials_section(others, "runs") == NO_RUNS


def test_heads_by_the_features_they_are_trained_on() -> None:
    made = "features of conv4 by stage_one/mini_conv4_half, run 1, step-00003500, from 6d09"
    curves = {**CURVES, "validation_interval": [0.01, 0.02, 0.03]}

    def head(name: str, started: str, made_by: str, **changes: object) -> RunRecord:
        return run(name, started, training={"features": made_by}, curves=curves, **changes)

    seen, unseen = "egnn/mini_5w1s_half_seen", "egnn/mini_5w1s_half_unseen"
    records = [
        head(unseen, "1", made),
        head(seen, "2", made),
        head(seen, "3", f"{made}; each image in 2 views under augmentation (crop_flip)"),
        head(seen, "4", made.replace("_half", "_distilled")),
        head(seen, "5", made, status="failed"),
        head("egnn/mini_5w1s_frozen", "6", made),
    ]
    rows = [line for line in heads_section(records, "runs").splitlines() if "egnn/" in line]
    assert [row.split(" | ")[1:3] for row in rows] == [
        ["classes it saw", "as they are"],
        ["classes it saw", "each image in 2 views under augmentation (crop_flip)"],
        ["classes it did not see", "as they are"],
    ]
    assert all(row.endswith("| 90.0 | 64.00 ± 2.00 |") for row in rows)
    assert heads_section(records[3:], "runs") == NO_RUNS


def trained(folder: Path, number: int, accuracy: float, captured: bool | None, **changes: object) -> RunRecord:
    correct = np.full((20, 1, 10), accuracy)
    (folder / "tasks").mkdir(exist_ok=True)
    np.savez_compressed(folder / f"tasks/{number}.npz", correct=correct)
    evaluation = replace(make_evaluation(accuracy), tasks_file=f"tasks/{number}.npz")
    training = {"iterations": 1500} | ({} if captured is None else {"captured": captured})
    return make_record(number, evaluation, training=training, **changes)


def test_the_newest_fast_and_plain_run_are_subtracted(tmp_path: Path) -> None:
    old, fast = trained(tmp_path, 1, 0.1, True), trained(tmp_path, 3, 0.6, True)
    plain, other = trained(tmp_path, 2, 0.5, False), trained(tmp_path, 4, 0.9, False, commit="later")
    table = paths_table([fast, old, plain, other], "results/runs", tmp_path)
    assert [(fast.record, plain.record) for fast, plain in table.full] == [(fast, plain)]
    (row,) = rows_of(table.markdown())
    assert row[1] == "1,500" and row[5] == "+10.00 ± 0.00" and "(results/runs/" in row[3]


def test_without_a_pair_there_is_no_table(tmp_path: Path) -> None:
    records = [
        trained(tmp_path, 1, 0.5, None),
        trained(tmp_path, 2, 0.5, True),
        trained(tmp_path, 3, 0.5, False, seed=7),
    ]
    assert paths_table(records, "r", tmp_path).rows == []
