"""Audits between markers: the newest of each recipe: the newest of each recipe, with counts and every finding."""

from __future__ import annotations

from audit_findings import audit_record
from result_records import make_evaluation, make_record

from engram.report.verdicts import NO_AUDITS, audit_lines, audit_section, newest_audits


def test_the_newest_finished_audit_of_each_recipe_counts() -> None:
    records = [
        audit_record(3, trained_by="20260101-000000-trained"),
        audit_record(1),
        audit_record(4, status="failed"),
        audit_record(2, recipe_name="egnn/mini_5w1s", method="egnn"),
        make_record(5, make_evaluation(0.5)),
    ]
    assert [r.run_id[13:15] for r in newest_audits(records)] == ["03", "02"]
    assert [r.run_id[13:15] for r in newest_audits(records, "egnn/mini_5w1s")] == ["02"]
    assert newest_audits(records, "egnn/mini_5w5s") == []


def test_a_section_has_counts_protocol_origin_record_and_every_finding() -> None:
    records = [audit_record(1, trained_by="T"), audit_record(2, recipe_name="b", method="b")]
    text = audit_section("cml_bgnn/mini_5w1s", records, "../r")
    assert "### CML-BGNN, `cml_bgnn/mini_5w1s`" in text and "2 clean, 1 declared, 1 leak, 1 not applicable." in text
    assert "100 streams; checkpoint of run T" in text and "**class order" in text
    assert (
        "](../r/cml_bgnn.mini_5w1s.20260101-000001-abcdef.json)" in text and text.count("| Does noise matter? |") == 1
    )
    assert "not trained" in audit_section("b", records, "../r")
    overview = audit_section("all", records, "../r")
    assert overview.count("99.9 %") == 1 and "Does noise matter?" not in overview
    assert "[`cml_bgnn/mini_5w1s`](../r/cml_bgnn.mini_5w1s.20260101-000001-abcdef.json)" in overview
    assert audit_section("all", [], "r") == NO_AUDITS


def test_a_methods_page_has_a_line_for_each_recipe_audited() -> None:
    records = [audit_record(1), audit_record(2, recipe_name="egnn/mini_5w1s", method="egnn")]
    lines = audit_lines("cml_bgnn", records, "../r").splitlines()
    link = "../r/cml_bgnn.mini_5w1s.20260101-000001-abcdef.json"
    assert lines[2:] == [f"- [`cml_bgnn/mini_5w1s`]({link}), anonymous streams: **1 leak**, declared: company"]
    assert audit_lines("maml", records, "../r") == ""
