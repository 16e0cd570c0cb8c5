"""Tables of speed, rebuilt from files: the newest of each; a memory of several sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engram.errors import EngramWarning
from engram.report.measured import AXES, MEMORIES, PARTS, memory_table, speed_section


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


def test_without_a_fast_and_a_plain_run_it_is_said(tmp_path: Path) -> None:
    assert speed_section("paths", [], "results/runs", tmp_path) == "Not measured yet."


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


def stored(device: str, ratio: bool, day: str = "2026-01-01") -> dict[str, Any]:
    step = {"step_ms": 8.0, "images_per_step": 800, "steps": 2000, "read_gb": 34.5, "resident_mib": 2773.0}
    recipe = {"disk": step} | ({"memory": {"step_ms": 7.0}, "near": {"step_ms": 7.5, "read_gb": 20.1}} if ratio else {})
    rates = {"build_s": 64.2, "build_resident_mib": 190.0, "open_s": 0.02}
    rates |= {"disk_alone_gb_per_s": 2.5} | ({"a/b, disk / memory": 1.14, "a/b, near / memory": 1.07} if ratio else {})
    setting = {"n_images": 448695, "store_gb": 9.5, "recipes": {"a/b": recipe}} | ({"near": "2GB"} if ratio else {})
    return {"benchmark": "store_disk", "device": device, "measured": day, "rates": rates, "setting": setting}


def test_training_from_disk_of_each_device_with_a_sentence_on_its_store(tmp_path: Path) -> None:
    assert speed_section("store", [], "runs", tmp_path) == "Not measured yet."
    write(tmp_path, "old", **stored("H200", True))
    write(tmp_path, "new", **stored("H200", True, "2026-01-02"))
    write(tmp_path, "c", **stored("cpu", False))
    write(tmp_path, "before", **stored("H200", False))
    _, _, gpu, cpu, _, first, _, second = speed_section("store", [], "runs", tmp_path).splitlines()
    link = "[2026-01-02](speed/new.json)"
    step = "800 | 2,000 | 34.50"
    assert gpu == f"| `a/b` | H200 | 7.00 | 8.00 | 1.14 | 2GB | 7.50 | 1.07 | {step} | 20.10 | 2,773 | {link} |"
    assert cpu == f"| `a/b` | cpu |  | 8.00 |  |  |  |  | {step} |  | 2,773 | [2026-01-01](speed/c.json) |"
    assert first.startswith(
        "H200: 448,695 pictures, 9.50 GB, were built in 64 s with 190 MiB resident and opened in 0.020"
    )
    assert "Near: 2GB of the store on the device, the rest on disk." in first and "Near" not in second
    assert second.startswith("cpu: ") and "2.50 GB/s" in second


def test_each_size_that_was_kept_near_has_its_rows(tmp_path: Path) -> None:
    more = stored("H200", True)
    write(tmp_path, "less", **stored("H200", True))
    write(tmp_path, "more", **more | {"setting": more["setting"] | {"near": "4GB"}})
    rows = [line for line in speed_section("store", [], "runs", tmp_path).splitlines() if line.startswith("| `a/b`")]
    assert [row.split(" | ")[5] for row in rows] == ["2GB", "4GB"]


def test_a_memory_of_several_sizes() -> None:
    keys = ("open_s", "add_1000_s", "index_s", "resident_mib", "answer_ms, proto_memory", "answer_ms, knn_memory")
    rates = {f"{key}, {size} pictures": size / 1000 for key in keys for size in (10_000, 1_000)}
    rates |= {f"{how}, {engine}, 10000 pictures": 70.0 for how in ("exact", "read") for engine in MEMORIES}
    content = {"rates": rates, "setting": {"width": 64, "classes": 20}, "device": "cpu, 2 threads"}
    lines = memory_table(content).markdown().splitlines()
    assert lines[2] == "| 1,000 | 1.00 | 1 | 1 | 1.00 | 1.0 | 1 |" and lines[3].startswith("| 10,000 | 10.00 |")
    assert "`proto_memory` 70.0 % and 70.0 %, `knn_memory` 70.0 % and 70.0 %." in lines[-1]


def test_a_file_that_is_no_measurement_is_named_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a")
    for name, text in (("b", "{"), ("c", "[]"), ("d", '{"measured": 5}')):
        (tmp_path / f"{name}.json").write_text(text)
    with pytest.warns(EngramWarning, match=r"not in the tables: .*\.json is no measurement") as told:
        assert "`egnn/glyphs_5w1s`" in speed_section("steps", [], "../results/runs", tmp_path)
    assert len(told) == 3
