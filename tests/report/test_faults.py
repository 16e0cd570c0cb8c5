"""What was tried to break it, as tables and a figure from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engram.report.faults import FAULTS, SOAK, faults_section, soak_figure

DAY = {"measured": "2026-01-01T00:00:00Z", "cores": 2, "load_average": 0.5}


def write(results: Path, name: str, **content: Any) -> None:
    (results / name).parent.mkdir(exist_ok=True)
    (results / name).write_text(json.dumps({**DAY, **content}))


def counted(tried: int, failed: int = 0) -> dict[str, int]:
    return {"tried": tried, "failed": failed}


@pytest.mark.parametrize("name", FAULTS)
def test_without_files_it_is_said(name: str, tmp_path: Path) -> None:
    assert faults_section(name, "../results/runs", tmp_path) == "Not measured yet."
    assert soak_figure(tmp_path) == {}


def test_the_last_run_of_each_seed_is_added_up_beside_what_was_before(tmp_path: Path) -> None:
    kinds = {"bytes: store, a.npy": counted(5), "bytes: store, b.npy": counted(6, 1), "kills: a store": counted(9)}
    write(tmp_path, "faults/before.json", note="a hundred inputs", kinds={"kills: a store": counted(18, 4)})
    write(tmp_path, "faults/faults.1.json", seed=1, seconds=99, kinds={"bytes: gone": counted(1, 1)})
    write(tmp_path, "faults/faults.2.json", seed=1, seconds=60, kinds=kinds, measured="2026-01-02T00:00:00Z")
    write(tmp_path, "faults/faults.3.json", seed=7, seconds=600, kinds=kinds)
    table = faults_section("tried", "../results/runs", tmp_path)
    assert "| bytes: store |  |  | 22 | 2 |" in table
    assert "| kills: a store | 18 | 4 | 18 | 0 |\n| **all** |  |  | 40 | 2 |" in table
    assert "gone" not in table and "Before: a hundred inputs. Now: [seed 1](../results/faults/faults.2.json)" in table


def test_the_log_of_the_sanitizer_is_shown(tmp_path: Path) -> None:
    write(tmp_path, "faults/sanitizer.1.json", compiler="gcc 12", flags="-g", log={"1": "60 shapes: nothing found\n"})
    assert "gcc 12, `-g`" in (text := faults_section("sanitizer", "runs", tmp_path))
    assert "```text\nseed 1: 60 shapes: nothing found\n```" in text


def test_the_soak_is_a_sentence_and_a_figure(tmp_path: Path) -> None:
    time = {"minutes": [0.0, 1.0, 2.0], "resident_mib": [200.0, 400.0, 401.0], "open_files": [6, 6, 6]}
    time["slope_a_minute"] = {"resident_mib": 0.5, "open_files": -0.0}  # type: ignore[assignment]
    setting = {"minutes": 2.0, "warm_up": 0.4, "rounds": 12}
    write(tmp_path, "speed/soak.cpu.1.json", setting=setting, growth={"time": time})
    text = faults_section("soak", "../results/runs", tmp_path)
    assert "12 rounds in 2 minutes. After 0.4 minutes of warm-up memory changes by +0.50 MiB a minute" in text
    drawn = soak_figure(tmp_path / "speed")[SOAK]
    assert "memory, MiB" in drawn and "open files" in drawn and "2 minutes of use" in drawn
