"""Tables of own pictures: engines, encoders and kinds of pictures, labels that suggesting saves."""

from __future__ import annotations

import json
from pathlib import Path

from engram.report.own_pictures import confidence_table, encoders_table, own_section, suggest_table

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


def test_encoders_beside_each_other() -> None:
    one, many = ({"accuracy": a, "interval": 0.01, "ece": 1 - a} for a in (0.5, 0.9))
    cells = {"5x1": one, "5x20": many, "20x1": one}
    content = {
        "tasks": 40,
        "sizes": {"Birds": [20, 24], "Drawings": [100, 20]},
        "taught": {"seer": ["Birds"]},
        "encoders": {"seer": {"Birds": cells, "Drawings": {"5x1": one}}, "other": {"Birds": cells, "Drawings": cells}},
    }
    lines = encoders_table(content, "5").markdown().splitlines()
    assert lines[0] == "| Pictures | Encoder | 1 of each | 20 of each |"
    assert lines[2] == "| Birds | `seer` | 50.00 ± 1.00 * | 90.00 ± 1.00 * |"
    assert lines[4] == "| Drawings | `seer` | 50.00 ± 1.00 |  |"
    assert "40 tasks of 5 test classes" in lines[-1] and "`seer` 50.0 (Birds, 1 of each)" in lines[-1]
    assert "10 tasks of 20 test classes" in encoders_table(content, "20").markdown()


def test_errors_of_confidence_by_classes_and_pictures() -> None:
    wrong, right = ({"ece": error, "fit_s": 40 * error, "tasks": 3} for error in (0.1, 0.025))
    seer = {"Birds": {"2x1": wrong, "2x10": right, "2x2": right, "100x2": wrong}}
    lines = confidence_table({"tasks": 30, "stated": {"seer": seer}}).markdown().splitlines()
    assert lines[0] == "| Encoder | Pictures | Classes | 1 of each | 2 of each | 10 of each |"
    assert lines[2:4] == ["| `seer` | Birds | 2 | 10.0 | 2.5 | 2.5 |", "| `seer` | Birds | 100 |  | 10.0 |  |"]
    assert (
        "2 of 3 are at most 5 %" in lines[-1]
        and "over 3 tasks of most classes to 3" in lines[-1]
        and "4.0 s at most" in lines[-1]
    )


def test_labels_that_suggesting_saves() -> None:
    curves = {"random": [0.5, 0.55, 0.6], "suggest": [0.5, 0.6, 0.7]}
    setting = {"n_way": 2, "seeds": 3, "pool": 9, "batch": 1}
    content = {"setting": setting, "labels": [2, 3, 4], "accuracy": curves, "interval": curves, "reached": 3}
    table = suggest_table(content).markdown()
    assert "| 4 | 70.00 ± 70.00 | 60.00 ± 60.00 |" in table and "| 3 |" not in table
    assert "3 labels of `suggest` are as good as 4 at random." in table
    assert "It saves no labels." in suggest_table({**content, "reached": None}).markdown()
