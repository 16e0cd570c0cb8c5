"""The picture of the README: a labelled line for each recorded curve, labels apart, nothing without records."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from study_ledger import add_record

from engram.report.study.sections import StudyBook
from engram.report.study.stream_picture import CLOSEST, CURVES, NAME, spread
from engram.studies.schema import load_study


def test_recorded_curves_are_drawn_and_named(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    assert StudyBook(tmp_path / "runs").figures() == {}
    add_record(tmp_path / "runs", "cml_bgnn/mini_5w1s_public_class_order", rise=0.3)
    drawing = StudyBook(tmp_path / "runs").figures()[NAME]
    words = "".join(ElementTree.fromstring(drawing).itertext())
    assert CURVES[0].label in words and "task in the stream" in words and CURVES[1].label not in words
    assert "prefers-color-scheme:dark" in drawing


def test_at_most_six_curves_each_a_row_of_its_study() -> None:
    assert len(CURVES) <= 6
    for curve in CURVES:
        rows = {row.label: [cell.column for cell in row.cells] for row in load_study(curve.study).rows}
        assert curve.column in rows[curve.row]


def test_labels_keep_their_order_and_a_distance() -> None:
    heights = spread({"top": 0.9, "low": 0.5, "just above": 0.51, "same": 0.5})
    assert list(heights) == ["low", "same", "just above", "top"] and heights["low"] == 0.5 and heights["top"] == 0.9
    assert all(b - a > 0.999 * CLOSEST for a, b in pairwise(heights.values()))
