"""What README shows of the quickstart comes from records: the newest answer of each system to one setting."""

from __future__ import annotations

import pytest
from result_records import make_evaluation, make_record

from engram.errors import EngramError
from engram.report.quickstart import NOT_RUN, SETTINGS, check_quickstart_section, quickstart_section, recorded_rows

ASKED = {"dataset": "glyphs", "stream_length": 1, "n_query": 1, **SETTINGS["20-way 1-shot"]}


def test_the_newest_answer_to_the_setting_is_shown() -> None:
    proto = {"kind": "train", "method": "proto_net", "recipe_name": "proto_net/glyphs_quick"}
    records = [
        make_record(1, make_evaluation(0.5, **ASKED), **proto),
        make_record(2, make_evaluation(0.75, **ASKED), **proto),
        make_record(3, make_evaluation(0.9, **{**ASKED, "n_way": 10}), **proto),
        make_record(4, make_evaluation(0.05, **ASKED), method="chance", recipe_digest="other", training={}),
    ]
    rows = recorded_rows(records, "20-way 1-shot")
    assert [(r.system, r.accuracy) for r in rows] == [("chance", 0.05), ("ProtoNet", 0.75)]
    text = quickstart_section("20-way", records, "results/runs").splitlines()
    assert text[1].startswith("20-way 1-shot") and text[2].endswith("none") and "75.0 ± " in text[3]
    assert quickstart_section("5-way", records, "results/runs") == NOT_RUN


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(EngramError, match="names no known setting; did you mean '20-way'"):
        check_quickstart_section("20-wey", "README.md", [])
