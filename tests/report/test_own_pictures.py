"""Tables of own pictures: encoders and kinds of pictures, a memory of several sizes."""

from __future__ import annotations

from engram.report.own_pictures import ENGINES, confidence_table, encoders_table, memory_table


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


def test_a_memory_of_several_sizes() -> None:
    keys = ("open_s", "add_1000_s", "index_s", "resident_mib", "answer_ms, proto_memory", "answer_ms, knn_memory")
    rates = {f"{key}, {size} pictures": size / 1000 for key in keys for size in (10_000, 1_000)}
    rates |= {f"{how}, {engine}, 10000 pictures": 70.0 for how in ("exact", "read") for engine in ENGINES}
    content = {"rates": rates, "setting": {"width": 64, "classes": 20}, "device": "cpu, 2 threads"}
    lines = memory_table(content).markdown().splitlines()
    assert lines[2] == "| 1,000 | 1.00 | 1 | 1 | 1.00 | 1.0 | 1 |" and lines[3].startswith("| 10,000 | 10.00 |")
    assert "`proto_memory` 70.0 % and 70.0 %, `knn_memory` 70.0 % and 70.0 %." in lines[-1]
