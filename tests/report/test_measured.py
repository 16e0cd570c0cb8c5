"""Tables of speed and of own pictures: rebuilt from files and pairs of runs, the newest of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engram.errors import EngramWarning
from engram.report.measured import (
    AXES,
    PARTS,
    own_section,
    speed_section,
)


def write(folder: Path, name: str, **changes: Any) -> None:
    content = {
        "benchmark": "train_step",
        "device": "cpu, 2 threads",
        "load_average": 0.1,
        "measured": "2026-01-01T00:00:00Z",
        "setting": {"recipe": "egnn/glyphs_5w1s"},
        "step_total_ms": 8.0,
        "parts_ms": dict.fromkeys(PARTS, 1.25),
        "rates": {"tasks_per_s": 10000.0, "roofline_ms": 4.0, "ratio_to_roofline": 2.0},
    }
    (folder / f"{name}.json").write_text(json.dumps({**content, **changes}))


def test_the_newest_of_each_recipe_and_device_counts(tmp_path: Path) -> None:
    write(tmp_path, "a", step_total_ms=99.0)
    write(tmp_path, "b", measured="2026-01-02T00:00:00Z")
    write(
        tmp_path, "c", device="NVIDIA H200", parts_ms={}, load_average=3.0, rates={"times_faster_than_public_loop": 50}
    )
    table = speed_section("steps", [], "../results/runs", tmp_path)
    gpu, cpu, parts = (line for line in table.splitlines() if "`egnn/" in line)
    assert gpu == (
        "| `egnn/glyphs_5w1s` | NVIDIA H200, load average 3.0 | 8.00 |  |  |  |  | 50.0 "
        "| [2026-01-01](../results/speed/c.json) |"
    )
    assert "| 8.00 | 10,000 |  | 4.00 | 2.00 |  | [2026-01-02](../results/speed/b.json) |" in cpu
    assert parts.count("1.25") == len(PARTS) and "cpu" in parts


def test_growth_comes_from_the_last_file_that_has_it(tmp_path: Path) -> None:
    assert speed_section("growth", [], "results/runs", tmp_path) == "Not measured yet."
    grown = {axis: {"sizes": [1, 2], "step_total_ms": [8.0, 16.0], "slope": 1.0} for axis in AXES}
    grown["T"] = {"sizes": [8], "step_total_ms": [8.0], "slope": None}
    write(tmp_path, "a", growth=grown)
    write(tmp_path, "b", measured="2026-01-02T00:00:00Z")
    rows = speed_section("growth", [], "results/runs", tmp_path).splitlines()[2:]
    assert "| ways | 1, 2 | 8.0, 16.0 | 1.00 | [2026-01-01](results/speed/a.json) |" in rows[0]
    assert "| T | 8 | 8.0 |  |" in rows[3]


def test_evaluations_from_images_and_from_features(tmp_path: Path) -> None:
    setting = {
        "recipe": "egnn/glyphs_5w1s",
        "tasks": 10000,
        "asked": "images",
        "device_kind": "cpu",
        "dataset": "glyphs",
    }
    rates = {"seconds": 5.0, "tasks_per_s": 2000.0}
    write(tmp_path, "a", benchmark="evaluation", setting=setting, rates=rates, step_total_ms=None)
    write(tmp_path, "b", benchmark="evaluation", setting={**setting, "asked": "features"}, rates=rates)
    features, images = speed_section("evaluation", [], "results/runs", tmp_path).splitlines()[2:]
    assert "| images | 10,000 | 5.00 | 2,000 | [2026" in images and "| features |" in features


FIGURES = {"accuracy": 0.7, "interval": 0.01, "ece": 0.02, "nll": 0.8}


def write_own(folder: Path, name: str, **content: object) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"measured": "2026-01-01T00:00:00Z", "tasks": 9, **content}))


def test_the_newest_measurement_counts_and_the_winner_is_marked(tmp_path: Path) -> None:
    engines = {"slow": {"5": {**FIGURES, "accuracy": 0.6}}, "good": {"5": FIGURES}, "good transductive": {"5": FIGURES}}
    facts = {"engines": engines, "chosen": "good", "chosen_at": 5, "protocols": {"5": {"n_way": 5, "n_query": 15}}}
    write_own(tmp_path, "fit.glyphs.a", **facts)
    write_own(tmp_path, "fit.glyphs.b", **{**facts, "chosen": "slow", "measured": "2025-01-01T00:00:00Z"})
    table = own_section("engines.glyphs", "../results/runs", tmp_path)
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert "`good`, **the default** | 70.00 ± 1.00" in rows[0] and "`slow` | 60.00" in rows[1]
    assert "`good`, transductive" in rows[2] and "(../results/own/fit.glyphs.a.json)" in table


def test_test_rounds_and_speed(tmp_path: Path) -> None:
    shots = {"5": {"default": FIGURES, "temperature 1": FIGURES, "transductive": FIGURES}}
    reject = {"auroc": 0.7, "interval": 0.01, "auroc_of_probability": 0.5}
    write_own(tmp_path, "test.glyphs.a", engine="good", shots=shots, rejection=reject, rounds=[0.5, 0.62])
    assert "0.700 ± 0.010 with familiarity" in own_section("test.glyphs", "results/runs", tmp_path)
    assert "rises by 12.0 points" in own_section("rounds.glyphs", "results/runs", tmp_path)
    assert own_section("speed", "results/runs", tmp_path) == "Not measured yet."
    speed = {"cold_seconds": 3.0, "warm_seconds": 0.2, "pictures_per_second": 200.0, "page_seconds": 4.0}
    write_own(tmp_path, "speed.a", device="cpu, 2 threads", load_average=0.3, **speed)
    assert "0.200 s" in own_section("speed", "results/runs", tmp_path)
    write_own(tmp_path, "speed.b", device="cpu", load_average=0.3, setting={"size": 256}, cached_seconds=1.5, **speed)
    table = own_section("speed", "results/runs", tmp_path)
    assert "files of 256x256 | 200 |" in table and "seen before, answered | 1.50 s |" in table


def test_more_classes_at_once(tmp_path: Path) -> None:
    row = {"default": FIGURES, "transductive": FIGURES, "centroids": {"accuracy": 0.6, "interval": 0.01}}
    ways = {"20": row, "5": row}
    facts = {"rejection": {"auroc_no_birds": 0.98}, "ways": ways, "centroids": {"5": row["centroids"]}}
    write_own(tmp_path, "test.imagenet.a", **facts)
    table = own_section("ways.imagenet", "results/runs", tmp_path)
    assert table.index("| 5 | 70.00") < table.index("| 20 | 70.00 ± 1.00 | 70.00 ± 1.00 | 60.00 ± 1.00 | 2.0 |")
    assert "60.00 ± 1.00 % from 5" in table and "ROC curve 0.980" in table


def test_a_file_that_is_no_measurement_is_named_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a")
    for name, text in (("b", "{"), ("c", "[]"), ("d", '{"measured": 5}')):
        (tmp_path / f"{name}.json").write_text(text)
    with pytest.warns(EngramWarning, match=r"not in the tables: .*\.json is no measurement") as told:
        assert "`egnn/glyphs_5w1s`" in speed_section("steps", [], "../results/runs", tmp_path)
    assert len(told) == 3
