"""Commands from end to end at the smallest size: what they print and what they write."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import evaluation, packing, processes, store_disk, train_step
from engram.report.measured import speed_section
from engram.report.scale import scale_section


def ran(module: Any, arguments: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", ["benchmark", *arguments.split(), "--out", str(out)])
    module.main()
    (path,) = out.glob("*.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(
        '[method]\nname = "proto_net"\n[backbone]\nname = "conv32"\n[data]\ndataset = "glyphs"\nstream_length = 2\n'
        "[train]\niterations = 2\nsequences = 2\n[test]\nstream_length = 2\n"
    )
    return path


def test_a_step_with_its_roofline(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "speed"
    content = ran(train_step, f"--recipe {recipe} --synthetic --repeats 2 --warm-up 1", out, monkeypatch)
    rates = content["rates"]
    assert rates["ratio_to_roofline"] == pytest.approx(content["step_total_ms"] / rates["roofline_ms"], rel=0.01)
    assert rates["peak_memory_mib"] > 0 and content["setting"]["images_per_step"] == 40
    assert "public_loop_ms" not in rates, "other work, and no H200"
    assert "`tiny`" in speed_section("steps", [], "results/runs", out)


@pytest.mark.parametrize("what", ["--synthetic", "--features"])
def test_an_evaluation(what: str, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "speed"
    content = ran(evaluation, f"--recipe {recipe} {what} --tasks 8 --repeats 1", out, monkeypatch)
    assert content["setting"]["tasks"] == 8 and content["rates"]["tasks_per_s"] > 0
    assert content["setting"]["asked"] == ("features" if what == "--features" else "images")
    assert "`tiny`" in speed_section("evaluation", [], "results/runs", out)


def test_a_store_on_disk(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of it, on a store of two pictures in each class; nothing of it is left."""
    for name, few in (("READ_ROWS", 100), ("READS", 20), ("FEWER", (1,))):
        monkeypatch.setattr(store_disk, name, few)
    recipe.write_text(recipe.read_text().replace("glyphs", "tieredimagenet"))
    arguments = f"--recipe {recipe} --folder {tmp_path / 'disk'} --n-images 800 --near 9MB --repeats 1 --warm-up 1"
    content = ran(store_disk, arguments, tmp_path / "speed", monkeypatch)
    (steps,) = content["setting"]["recipes"].values()
    assert steps["disk"]["from_disk"] and not steps["memory"]["from_disk"] and steps["disk"]["images_per_step"] == 40
    assert content["rates"]["tiny, disk / memory"] > 0 and content["rates"]["open_s"] < 5
    assert steps["near"]["from_disk"] and content["rates"]["tiny, near / memory"] > 0
    assert not any((tmp_path / "disk").iterdir())
    assert "800 pictures, 0.02 GB" in speed_section("store", [], "results/runs", tmp_path / "speed")


@pytest.mark.slow
def test_two_processes_against_one(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "speed"
    small = "--synthetic --steps 2 --repeats 1 --warm-up 1"
    content = ran(processes, f"--recipe {recipe} {small}", out, monkeypatch)
    differences = {case["norms"]: case["difference"] for case in content["cases"] if "norms" in case}
    assert differences.keys() == {"synchronised", "frozen"} and max(differences.values()) < 1e-9
    (times,) = (case for case in content["cases"] if "two_ms" in case)
    assert times["expected_ms"] == pytest.approx(times["half_ms"] + times["message_ms"])
    assert "`tiny`" in scale_section("processes", [], "results/runs", out)


@pytest.mark.slow
def test_four_trainings_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "speed"
    content = ran(packing, "--iterations 2 --per-gpu 2", out, monkeypatch)
    turn, together = content["cases"]
    assert turn["times_sooner"] == 1 and together["loss_difference"] == together["accuracy_difference"] == 0.0
    assert "| side by side |" in scale_section("packing", [], "results/runs", out)
