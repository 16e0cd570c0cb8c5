"""Figures of streams: repeatable, named, and without thin bins."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from stream_records import ANONYMOUS, CONTENT, PROTO, stream_record
from study_ledger import add_record

from engram.report.book import Book
from engram.report.stream_figures import PICTURE, PICTURE_LINES, stream_figures, stream_picture
from engram.report.streams import stream_cells
from engram.report.svg import INK, SERIES
from engram.studies.schema import load_study


def test_what_reads_no_names_is_drawn_in_named_streams_too(tmp_path: Path) -> None:
    anonymous = {"length": 128, "names": "anonymous"}
    records = [
        stream_record(tmp_path, 1, CONTENT, 0.7, length=128),
        stream_record(tmp_path, 2, "egnn/mini", 0.5, **anonymous),
        stream_record(tmp_path, 3, "cml_bgnn/slots", 0.5, method_settings={}, **anonymous),
        stream_record(tmp_path, 4, "knn_memory/mini", 0.5, **anonymous),
    ]
    figures = stream_figures(records, tmp_path)
    named, other = (figures[f"memory_along_stream_{names}.svg"] for names in ("named", "anonymous"))
    for word, in_named, in_anonymous in (
        ("Content memory", True, False),
        ("EGNN", True, True),
        ("memory by slot", True, True),
        ("k-nearest", False, True),
    ):
        assert (word in named, word in other) == (in_named, in_anonymous), word
    assert "EGNN" not in figures["forgetting.svg"] and "memory by slot" in figures["forgetting.svg"]


def test_the_strongest_encoder_is_drawn_alone_by_encounters_and_beside_the_smallest_along_streams(
    tmp_path: Path,
) -> None:
    records = []
    for number, weights in enumerate(("conv4", "resnet12_wide", "resnet12_wide_full")):
        record = stream_record(tmp_path, number, CONTENT, 0.7, length=128)
        encoder = {"backbone": weights.removesuffix("_full"), "backbone_weights": f"runs/stage_one.mini_{weights}"}
        records.append(replace(record, recipe={**record.recipe, **encoder}))
    headings = {
        name: set(re.findall(r">(named, [^<:]+)", svg)) for name, svg in stream_figures(records, tmp_path).items()
    }
    strongest, smallest = "named, resnet12_wide, full", "named, conv4"
    assert headings["memory_along_stream_named.svg"] == {smallest, strongest}
    assert headings["encounters.svg"] == headings["forgetting.svg"] == {strongest}
    without = stream_figures(records[:2], tmp_path)["encounters.svg"]
    assert smallest in without and "named, resnet12_wide" in without, "as long as it is not there, all are drawn"


def test_figures_are_repeatable_name_systems_and_leave_thin_bins_out(tmp_path: Path) -> None:
    records = [
        stream_record(tmp_path, 1, CONTENT, 0.7, length=128),
        stream_record(tmp_path, 2, PROTO, 0.6, length=128),
        stream_record(tmp_path, 3, ANONYMOUS, 0.6, length=128, names="anonymous", erase_history=True),
    ]
    figures = stream_figures(records, tmp_path)
    assert figures == stream_figures(records[::-1], tmp_path)
    along = [f"memory_along_stream_{names}.svg" for names in ("named", "anonymous")]
    assert list(figures) == [*along, "forgetting.svg", "encounters.svg"]
    for svg in figures.values():
        root = ElementTree.fromstring(svg)
        words = ["".join(e.itertext()).strip() for e in root.iter("{http://www.w3.org/2000/svg}text")]
        assert any(w.startswith("Content memory") for w in words)
        assert not any(marker in svg for marker in (INK, *SERIES))
    assert "97\N{EN DASH}128" in figures[along[0]] and "5\N{EN DASH}8" not in figures["forgetting.svg"]
    assert stream_figures([stream_record(tmp_path, 4, CONTENT, 0.7)], tmp_path) == {}
    assert [c.length for c in stream_cells(records)] == [128] * 3


def test_recorded_curves_are_drawn_and_named(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    assert stream_picture(Book(tmp_path / "runs").cells) == {}
    add_record(tmp_path / "runs", "cml_bgnn/mini_5w1s_public_class_order", rise=0.3)
    drawing = stream_picture(Book(tmp_path / "runs").cells)[PICTURE]
    words = "".join(ElementTree.fromstring(drawing).itertext())
    assert PICTURE_LINES[0].label in words and "task in the stream" in words and PICTURE_LINES[1].label not in words


def test_at_most_six_curves_each_a_row_of_its_study() -> None:
    assert len(PICTURE_LINES) <= 6
    for curve in PICTURE_LINES:
        rows = {row.label: [cell.column for cell in row.cells] for row in load_study(curve.study).rows}
        assert curve.column in rows[curve.row]
