"""Tables of speed: rebuilt from the files of results/speed, the newest of each recipe and device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engram.errors import EngramError
from engram.report.speed import AXES, PARTS, check_speed_section, speed_section


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


def test_unknown_sections_are_refused() -> None:
    with pytest.raises(EngramError, match="there is no section of speed 'step'; did you mean"):
        check_speed_section("step", "docs/x.md", [])
