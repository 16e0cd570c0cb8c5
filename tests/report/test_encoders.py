"""The table of encoders and kinds of pictures."""

from __future__ import annotations

from engram.report.encoders import encoders_table


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
