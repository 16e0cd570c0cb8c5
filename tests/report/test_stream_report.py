"""Memory along the stream: which records count, what is paired, and that tables and figures are rebuilt and checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from test_tables import make_evaluation, make_record, rows_of

from engram.errors import EngramError
from engram.ledger import RunRecord, write_record
from engram.report.sections import rebuild
from engram.report.stream_cells import stream_cells
from engram.report.stream_figures import stream_figures
from engram.report.streams import NO_STREAMS, late_table, paired_table
from engram.report.svg import INK, SERIES
from engram.spellings import name_today

CONTENT, PROTO = "cml_bgnn/mini_5w1s_content_named", "proto_memory/mini_5w1s_frozen"
INDUCTIVE = "cml_bgnn/mini_5w1s_content_named_inductive"
ANONYMOUS = "cml_bgnn/mini_5w1s_content_anonymous"


def stream_record(
    folder: Path,
    number: int,
    recipe: str,
    late: float,
    length: int = 8,
    method_settings: dict[str, Any] | None = None,
    **changes: Any,
) -> RunRecord:
    """A record whose last quarter is right at the rate ``late``, exactly in every stream, and 0.4 before."""
    protocol = {"n_query": 15, "stream_length": length, "names": "named", "dataset_digest": "d", **changes}
    bins = {"accuracy": [0.5, late], "interval": [0.01, 0.01], "n": [40, 3]}
    stream = {"last_quarter": late, "last_quarter_interval": 0.004, "n_streams": 40}
    stream |= {"by_encounters": {"bin": ["0", "1"], **bins}, "by_gap": {"bin": ["1", "5-8"], **bins}}
    evaluation = make_evaluation(0.5, **protocol)
    correct = np.full((40, length, 10), 0.4)
    correct[:, length * 3 // 4 :] = late
    method, file = recipe.split("/")[0], f"tasks/{number}.npz"
    (folder / "tasks").mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / file, correct=correct)
    evaluation = replace(evaluation, metrics={**evaluation.metrics, "stream": stream}, tasks_file=file)
    method = "content_memory" if "content" in recipe else method
    values = {"backbone": "conv4", "method_settings": method_settings or {}}
    record = make_record(number, evaluation, kind="bench", method=method, recipe_name=recipe, recipe=values)
    return replace(record, training={"features": "features of conv4"})


def test_the_newest_record_of_each_cell_is_linked_and_other_settings_are_left_out(tmp_path: Path) -> None:
    records = [
        stream_record(tmp_path, 2, CONTENT, 0.7),
        stream_record(tmp_path, 1, CONTENT, 0.6),
        stream_record(tmp_path, 3, CONTENT, 0.8, length=128),
        stream_record(tmp_path, 4, CONTENT, 0.1, n_way=20),
        stream_record(tmp_path, 5, CONTENT, 0.1, recurrence_gap=3),
        replace(stream_record(tmp_path, 6, CONTENT, 0.1), status="interrupted"),
        stream_record(tmp_path, 7, ANONYMOUS, 0.55, names="anonymous", erase_history=True),
        make_record(8, make_evaluation(0.5)),
        replace(stream_record(tmp_path, 9, CONTENT, 0.9), training={}),  # with an encoder of its own
    ]
    first, second = rows_of(late_table(records, "../r"))
    assert first[:4] == ["named", "conv4", "Content memory, transductive", f"`{CONTENT}`"]
    assert first[4].startswith("[70.00 ± 0.40](../r/cml_bgnn.mini_5w1s_content_named.20260101-000002")
    assert first[5] == "" and first[6].startswith("[80.00")
    assert "history erased" in second[2] and second[4].startswith("[55.00")
    assert late_table([], "r") == paired_table([], "r", tmp_path) == NO_STREAMS


def test_runs_under_the_two_names_of_a_recipe_are_of_one_system(tmp_path: Path) -> None:
    """The newest of them counts, by the name it was written with."""
    today = name_today(CONTENT)
    records = [stream_record(tmp_path, 1, CONTENT, 0.6), stream_record(tmp_path, 2, today, 0.7)]
    records += [stream_record(tmp_path, 3, CONTENT, 0.5, erase_history=True), stream_record(tmp_path, 4, PROTO, 0.4)]
    rows = rows_of(late_table(records, "../r"))
    assert [row[3] for row in rows] == [f"`{today}`", f"`{PROTO}`", f"`{CONTENT}`"]
    assert rows[0][4].startswith("[70.00 ± 0.40](../r/content_memory.mini_5w1s_named.20260101-000002")
    differences = [row[2:5] for row in rows_of(paired_table(records, "../r", tmp_path))]
    assert [d[2] for d in differences] == ["+30.00 ± 0.00", "+20.00 ± 0.00"]
    assert "the same model, history erased" in differences[1][0]


def test_pairs_are_differences_of_streams(tmp_path: Path) -> None:
    records = [
        stream_record(tmp_path, 1, CONTENT, 0.7, length=32),
        stream_record(tmp_path, 2, PROTO, 0.69, length=32),
        stream_record(tmp_path, 3, ANONYMOUS, 0.6, names="anonymous"),
        stream_record(tmp_path, 4, ANONYMOUS, 0.5, names="anonymous", erase_history=True),
        stream_record(tmp_path, 5, CONTENT, 0.7),
        stream_record(tmp_path, 6, PROTO, 0.6, dataset_digest="other features"),
    ]
    first, second = rows_of(paired_table(records, "r", tmp_path))
    assert first[3:6] == ["32", "+1.00 ± 0.00", "40"]
    assert second[2].endswith("minus the same model, history erased")
    assert second[3:6] == ["8", "+10.00 ± 0.00", "40"]
    other = replace(records[1].evaluations[0], tasks_digest="t1")
    assert paired_table([records[0], replace(records[1], evaluations=[other])], "r", tmp_path) == NO_STREAMS


def test_the_lead_over_prototype_memory_is_taken_apart(tmp_path: Path) -> None:
    """Transduction: with it minus without. Metric: both histories erased. Memory: what is left of the fair match."""
    alone = {"transductive": False}
    records = [
        stream_record(tmp_path, 1, CONTENT, 0.75),
        stream_record(tmp_path, 2, INDUCTIVE, 0.7, method_settings=alone),
        stream_record(tmp_path, 3, PROTO, 0.64),
        stream_record(tmp_path, 4, INDUCTIVE, 0.52, method_settings=alone, erase_history=True),
        stream_record(tmp_path, 5, PROTO, 0.51, erase_history=True),
    ]
    rows = {row[2]: row[4] for row in rows_of(paired_table(records, "r", tmp_path))}
    assert rows == {
        "Content memory, transductive, minus Prototype memory": "+11.00 ± 0.00",
        "Content memory, transductive, minus Content memory": "+5.00 ± 0.00",
        "Content memory, minus Prototype memory": "+6.00 ± 0.00",
        "Content memory, history erased, minus Prototype memory, history erased": "+1.00 ± 0.00",
    }


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


def test_lost_task_files_are_told(tmp_path: Path) -> None:
    records = [stream_record(tmp_path, n, recipe, 0.6) for n, recipe in ((1, CONTENT), (2, PROTO))]
    (tmp_path / "tasks/2.npz").unlink()
    with pytest.raises(EngramError, match=r"2\.npz cannot be read .* restore them from git"):
        paired_table(records, "r", tmp_path)


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
        assert "prefers-color-scheme:dark" in svg and not any(marker in svg for marker in (INK, *SERIES))
    assert "97\N{EN DASH}128" in figures[along[0]] and "5\N{EN DASH}8" not in figures["forgetting.svg"]
    assert stream_figures([stream_record(tmp_path, 4, CONTENT, 0.7)], tmp_path) == {}
    assert [c.length for c in stream_cells(records)] == [128] * 3


def test_rebuild_writes_tables_and_figures_and_check_finds_what_differs(tmp_path: Path) -> None:
    runs, page = tmp_path / "results/runs", tmp_path / "docs/memory.md"
    page.parent.mkdir()
    page.write_text("".join(f"<!-- streams:begin {part} -->\n<!-- streams:end -->\n" for part in ("table", "paired")))
    for number, recipe in ((1, CONTENT), (2, PROTO)):
        write_record(runs, stream_record(runs, number, recipe, 0.6, length=128))
    figure = "docs/figures/encounters.svg"
    files = ["docs/memory.md", "docs/figures/memory_along_stream_named.svg", "docs/figures/forgetting.svg", figure]
    files.append("results/summary.csv")
    assert rebuild(tmp_path, check=True) == files and not (tmp_path / figure).exists()
    assert rebuild(tmp_path, check=False) == files and rebuild(tmp_path, check=True) == []
    link = page.read_text().split("](")[1].split(")")[0]
    assert (page.parent / link).is_file()
    (tmp_path / figure).write_text("<svg/>")
    assert rebuild(tmp_path, check=True) == [figure]
    page.write_text("<!-- streams:begin pairs -->\n<!-- streams:end -->\n")
    with pytest.raises(EngramError, match="did you mean 'paired'"):
        rebuild(tmp_path, check=True)
