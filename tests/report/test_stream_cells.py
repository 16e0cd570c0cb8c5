"""Which records tell of memory along the stream, and what each is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stream_records import ANONYMOUS, CONTENT, stream_record

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


def test_rows_of_a_system_stand_together_and_lengths_ascend(tmp_path: Path) -> None:
    lengths = {1: 128, 2: 8, 3: 32}
    records = [stream_record(tmp_path, number, CONTENT, 0.5, length=length) for number, length in lengths.items()]
    records.append(stream_record(tmp_path, 4, ANONYMOUS, 0.5, names="anonymous"))
    cells = stream_cells(records)
    assert [(cell.names, cell.length) for cell in cells] == [("named", t) for t in (8, 32, 128)] + [("anonymous", 8)]
    assert len({cell.questions for cell in cells[:3]}) == 3  # one digest, other lengths: not to be paired
