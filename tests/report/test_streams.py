"""Memory along the stream: which records count, and what is paired."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from result_records import make_evaluation, make_record, rows_of
from stream_records import ANONYMOUS, CONTENT, INDUCTIVE, PROTO, stream_record

from engram.report.streams import NO_STREAMS, _encoder, calibration_table, late_table, paired_table, stream_cells
from engram.spellings import name_today


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
    first, second = rows_of(late_table(records, "../r").markdown())
    assert first[:3] == ["named", "Content memory, transductive", f"`{CONTENT}`"]  # the encoder is told below
    assert first[3].startswith("[70.00 ± 0.40](../r/cml_bgnn.mini_5w1s_content_named.20260101-000002")
    assert first[4] == "" and first[5].startswith("[80.00")
    assert "history erased" in second[1] and second[3].startswith("[55.00")
    assert late_table([], "r").markdown() == paired_table([], tmp_path).markdown() == NO_STREAMS


def test_pairs_are_differences_of_streams(tmp_path: Path) -> None:
    records = [
        stream_record(tmp_path, 1, CONTENT, 0.7, length=32),
        stream_record(tmp_path, 2, PROTO, 0.69, length=32),
        stream_record(tmp_path, 3, ANONYMOUS, 0.6, names="anonymous"),
        stream_record(tmp_path, 4, ANONYMOUS, 0.5, names="anonymous", erase_history=True),
        stream_record(tmp_path, 5, CONTENT, 0.7),
        stream_record(tmp_path, 6, PROTO, 0.6, dataset_digest="other features"),
    ]
    text = paired_table(records, tmp_path).markdown()
    first, second = rows_of(text)
    assert first[2:] == ["", "+1.00 ± 0.00", ""] and "Streams: 40 of 8 tasks, 40 of 32 tasks." in text
    assert second[1:] == ["Content memory, transductive, minus the same model, history erased", "+10.00 ± 0.00", "", ""]
    other = replace(records[1].evaluations[0], tasks_digest="t1")
    alone = [records[0], replace(records[1], evaluations=[other])]
    assert paired_table(alone, tmp_path).markdown() == NO_STREAMS


def test_the_strongest_encoder_comes_first_and_the_others_are_folded_away(tmp_path: Path) -> None:
    full, weights = f"{CONTENT}_resnet12_wide_full", "weights/stage_one.mini_resnet12_wide_full"
    strong = stream_record(tmp_path, 1, full, 0.9)
    strong = replace(strong, recipe={**strong.recipe, "backbone": "resnet12_wide", "backbone_weights": weights})
    text = late_table([stream_record(tmp_path, 2, CONTENT, 0.7), strong], "r").markdown()
    opening, _, rest = text.partition("\n<summary>Rows over weaker encoders (conv4): 1</summary>\n\n")
    assert "[90.00" in opening and "[70.00" not in opening and "Recipe" not in opening
    assert "[70.00" in rest and "[90.00" not in rest and f"`{CONTENT}`" in rest


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
    rows = {row[1]: row[2] for row in rows_of(paired_table(records, tmp_path).markdown())}
    assert rows == {
        "Content memory, transductive, minus Prototype memory": "+11.00 ± 0.00",
        "Content memory, transductive, minus Content memory": "+5.00 ± 0.00",
        "Content memory, minus Prototype memory": "+6.00 ± 0.00",
        "Content memory, history erased, minus Prototype memory, history erased": "+1.00 ± 0.00",
    }


def test_stated_confidence_by_position_is_that_of_the_longest_stream_that_tells(tmp_path: Path) -> None:
    def telling(number: int, length: int) -> Any:
        record = stream_record(tmp_path, number, CONTENT, 0.7, length=length)
        metrics = record.evaluations[0].metrics | {
            "accuracy_by_position": [0.5] + [0.6] * 7 + [0.8] * (length - 8),
            "confidence_by_position": [0.4] + [0.65] * 7 + [0.9] * (length - 8),
            "ece_by_position": [0.1] + [0.05] * 7 + [0.1] * (length - 8),
        }
        return replace(record, evaluations=[replace(record.evaluations[0], metrics=metrics)])

    silent = stream_record(tmp_path, 3, CONTENT, 0.7, length=128)
    (row,) = rows_of(calibration_table([telling(1, 8), telling(2, 32), silent], "r").markdown())
    assert row[3:] == ["50.0 / 40.0, 10.0", "60.0 / 65.0, 5.0", "80.0 / 90.0, 10.0", ""]
    assert calibration_table([silent], "r").markdown() == NO_STREAMS


def test_lost_task_files_are_told(tmp_path: Path) -> None:
    records = [stream_record(tmp_path, n, recipe, 0.6) for n, recipe in ((1, CONTENT), (2, PROTO))]
    (tmp_path / "tasks/2.npz").unlink()
    (row,) = rows_of(paired_table(records, tmp_path).markdown())
    assert row[3:] == ["per-task results cannot be read", "", ""]


def test_runs_under_the_two_names_of_a_recipe_are_of_one_system(tmp_path: Path) -> None:
    """The newest of them counts, by the name it was written with."""
    today = name_today(CONTENT)
    records = [stream_record(tmp_path, 1, CONTENT, 0.6), stream_record(tmp_path, 2, today, 0.7)]
    records += [stream_record(tmp_path, 3, CONTENT, 0.5, erase_history=True), stream_record(tmp_path, 4, PROTO, 0.4)]
    rows = rows_of(late_table(records, "../r").markdown())
    assert [row[2] for row in rows] == [f"`{today}`", f"`{PROTO}`", f"`{CONTENT}`"]
    assert rows[0][3].startswith("[70.00 ± 0.40](../r/content_memory.mini_5w1s_named.20260101-000002")
    differences = [row[1:3] for row in rows_of(paired_table(records, tmp_path).markdown())]
    assert [d[1] for d in differences] == ["+30.00 ± 0.00", "+20.00 ± 0.00"]
    assert "the same model, history erased" in differences[1][0]


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
    assert [cell.label for cell in stream_cells([record])] == [label]


def test_rows_of_a_system_stand_together_and_lengths_ascend(tmp_path: Path) -> None:
    lengths = {1: 128, 2: 8, 3: 32}
    records = [stream_record(tmp_path, number, CONTENT, 0.5, length=length) for number, length in lengths.items()]
    records.append(stream_record(tmp_path, 4, ANONYMOUS, 0.5, names="anonymous"))
    cells = stream_cells(records)
    assert [(cell.names, cell.length) for cell in cells] == [("named", t) for t in (8, 32, 128)] + [("anonymous", 8)]
    assert len({cell.questions for cell in cells[:3]}) == 3  # one digest, other lengths: not to be paired


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ("weights/stage_one.mini_resnet12_wide_strong", "resnet12_wide, strong"),
        ("runs/stage_one.mini_resnet12_wide", "resnet12_wide"),
        ("runs/mine", "resnet12_wide"),
        ("", "resnet12_wide"),
    ],
)
def test_trainings_of_one_encoder_are_kept_apart(weights: str, told: str) -> None:
    assert _encoder({"backbone": "resnet12_wide", "backbone_weights": weights}) == told
