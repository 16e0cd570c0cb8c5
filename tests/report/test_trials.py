"""Runs with a moving average, side by side by their validation accuracy."""

from __future__ import annotations

from dataclasses import replace

from engram.ledger import RunRecord
from engram.recipes import load_recipe
from engram.report.results import NOT_MEASURED
from engram.report.trials import trials_section

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
    assert "| 40 | 1.5 | 90.0 | 55.0 | 60.0 | 64.0 | 50 % |" in next(line for line in lines if strong in line)


def test_failed_runs_other_methods_and_runs_without_an_average_do_not_count() -> None:
    name = "stage_one/mini_resnet12_wide_strong"
    plain = {key: curve for key, curve in CURVES.items() if not key.endswith("average")}
    others = [
        run(name, "1", status="failed"),
        run(name, "2", curves=plain),
        run("proto_net/mini_5w1s", "3"),
        run("stage_one/own", "4"),
    ]
    assert trials_section(others, "runs") == NOT_MEASURED
