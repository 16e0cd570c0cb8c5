"""What README shows of the quickstart comes from records: the newest answer of each system to one setting."""

from __future__ import annotations

from result_records import make_evaluation, make_record

from engram.report.quickstart import (
    SETTINGS,
    QuickstartRow,
    duration,
    quickstart_section,
    quickstart_table,
    recorded_rows,
)
from engram.report.rows import result_rows

ASKED = {"dataset": "glyphs", "stream_length": 1, "n_query": 1, **SETTINGS["20-way 1-shot"]}


def test_the_newest_answer_to_the_setting_is_shown() -> None:
    proto = {"kind": "train", "method": "proto_net", "recipe_name": "proto_net/glyphs_quick"}
    records = [
        make_record(1, make_evaluation(0.5, **ASKED), **proto),
        make_record(2, make_evaluation(0.75, **ASKED), **proto),
        make_record(3, make_evaluation(0.9, **{**ASKED, "n_way": 10}), **proto),
        make_record(4, make_evaluation(0.05, **ASKED), method="chance", recipe_digest="other", training={}),
    ]
    rows = recorded_rows(result_rows(records), "20-way 1-shot")
    assert [(r.system, r.accuracy) for r in rows] == [("chance", 0.05), ("ProtoNet", 0.75)]
    text = quickstart_section("20-way", result_rows(records)).splitlines()
    assert text[1].startswith("20-way 1-shot") and text[2].endswith("none") and "75.0 ± " in text[3]
    assert quickstart_section("5-way", result_rows(records)) == "Not run yet."


def test_durations_and_figures_of_a_row() -> None:
    assert [duration(seconds) for seconds in (47.6, 119.4, 125)] == ["48 s", "119 s", "2 min 5 s"]
    table = quickstart_table([QuickstartRow("Chance", "5-way 1-shot", 0.2, 0.0042)], "page")
    assert [column.value(table.full[0]) for column in table.shown] == ["Chance", "20.0 ± 0.4", "", "none"]
