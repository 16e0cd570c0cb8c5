"""Which records tell of memory along the stream, and what each is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stream_records import stream_record

from engram.report.stream_cells import stream_cells


@pytest.mark.parametrize(
    ("recipe", "settings", "label"),
    [
        ("egnn/a", {"transductive": True}, "EGNN, transductive"),
        ("egnn/a", {"transductive": False}, "EGNN"),
        ("propagation_memory/a", {}, "Label propagation memory, transductive"),
        ("cml_bgnn/a", {}, "CML-BGNN, memory by slot, transductive"),
        ("cml_bgnn/a", {"history": "none", "transductive": False}, "CML-BGNN, no history"),
        ("content_memory/a", {}, "Content memory, transductive"),
        ("content_memory/a", {"transductive": False, "past_picture": 0.0, "node": 2.0}, "Content memory, by attention"),
    ],
)
def test_labels_say_what_is_remembered(tmp_path: Path, recipe: str, settings: dict[str, Any], label: str) -> None:
    record = stream_record(tmp_path, 1, recipe, 0.5, method_settings=settings, names="anonymous")
    assert [cell.label() for cell in stream_cells([record])] == [label]
