"""The table of labels that suggesting saves."""

from __future__ import annotations

from engram.report.suggested import suggest_table


def test_labels_that_suggesting_saves() -> None:
    curves = {"random": [0.5, 0.55, 0.6], "suggest": [0.5, 0.6, 0.7]}
    setting = {"n_way": 2, "seeds": 3, "pool": 9, "batch": 1}
    content = {"setting": setting, "labels": [2, 3, 4], "accuracy": curves, "interval": curves, "reached": 3}
    table = suggest_table(content).markdown()
    assert "| 4 | 70.00 ± 70.00 | 60.00 ± 60.00 |" in table and "| 3 |" not in table
    assert "3 labels of `suggest` are as good as 4 at random." in table
    assert "It saves no labels." in suggest_table({**content, "reached": None}).markdown()
