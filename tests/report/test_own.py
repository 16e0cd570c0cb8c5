"""Tables of own pictures: rebuilt from measurements, and checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engram.errors import EngramError
from engram.report.own import NAMES, check_own_section, own_section

FIGURES = {"accuracy": 0.7, "interval": 0.01, "ece": 0.02, "nll": 0.8}


def write(folder: Path, name: str, **content: object) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"measured": "2026-01-01T00:00:00Z", "tasks": 9, **content}))


def test_the_newest_measurement_counts_and_the_winner_is_marked(tmp_path: Path) -> None:
    engines = {"slow": {"5": {**FIGURES, "accuracy": 0.6}}, "good": {"5": FIGURES}, "good transductive": {"5": FIGURES}}
    facts = {"engines": engines, "chosen": "good", "chosen_at": 5, "protocols": {"5": {"n_way": 5, "n_query": 15}}}
    write(tmp_path, "fit.glyphs.a", **facts)
    write(tmp_path, "fit.glyphs.b", **{**facts, "chosen": "slow", "measured": "2025-01-01T00:00:00Z"})
    table = own_section("engines.glyphs", [], "../results/runs", tmp_path)
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert "`good`, **the default** | 70.00 ± 1.00" in rows[0] and "`slow` | 60.00" in rows[1]
    assert "`good`, transductive" in rows[2] and "(../results/own/fit.glyphs.a.json)" in table


def test_test_rounds_and_speed(tmp_path: Path) -> None:
    shots = {"5": {"default": FIGURES, "temperature 1": FIGURES, "transductive": FIGURES}}
    reject = {"auroc": 0.7, "interval": 0.01, "auroc_of_probability": 0.5}
    write(tmp_path, "test.glyphs.a", engine="good", shots=shots, rejection=reject, rounds=[0.5, 0.62])
    assert "familiarity 0.700 ± 0.010" in own_section("test.glyphs", [], "results/runs", tmp_path)
    assert "worth 12.0 points" in own_section("rounds.glyphs", [], "results/runs", tmp_path)
    assert own_section("speed", [], "results/runs", tmp_path) == "Not measured yet."
    speed = {"cold_seconds": 3.0, "warm_seconds": 0.2, "pictures_per_second": 200.0, "page_seconds": 4.0}
    write(tmp_path, "speed.a", device="cpu, 2 threads", load_average=0.3, **speed)
    assert "0.200 s" in own_section("speed", [], "results/runs", tmp_path)
    write(tmp_path, "speed.b", device="cpu", load_average=0.3, setting={"size": 256}, cached_seconds=1.5, **speed)
    table = own_section("speed", [], "results/runs", tmp_path)
    assert "files of 256x256 | 200 |" in table and "seen before, answered | 1.50 s |" in table


def test_more_classes_at_once_stand_below(tmp_path: Path) -> None:
    row = {"default": FIGURES, "transductive": FIGURES, "centroids": {"accuracy": 0.6, "interval": 0.01}}
    reject = {"auroc": 0.7, "interval": 0.01, "auroc_of_probability": 0.5, "auroc_no_birds": 0.98}
    facts = {"engine": "good", "shots": {"5": {"default": FIGURES, "temperature 1": FIGURES, "transductive": FIGURES}}}
    ways = {"20": row, "5": row}
    write(tmp_path, "test.imagenet.a", **facts, rejection=reject, ways=ways, centroids={"5": row["centroids"]})
    table = own_section("test.imagenet", [], "results/runs", tmp_path)
    assert table.index("| 5 | 70.00") < table.index("| 20 | 70.00 ± 1.00 | 70.00 ± 1.00 | 60.00 ± 1.00 | 2.0 |")
    assert "60.00 ± 1.00 % from 5" in table and "ROC curve 0.980" in table


def test_unknown_sections_are_refused() -> None:
    with pytest.raises(EngramError, match="there is no section of own pictures 'tests.glyphs'; did you mean"):
        check_own_section("tests.glyphs", "docs/x.md", [])
    assert "speed" in NAMES
