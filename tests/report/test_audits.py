"""Audits between markers: the newest of each recipe, nothing misspelt, and never a row of results."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_audit_report import FINDINGS
from test_tables import make_evaluation, make_record

from engram.errors import EngramError
from engram.ledger import RunRecord, write_record
from engram.report.rows import result_rows
from engram.report.sections import rebuild
from engram.report.verdicts import NO_AUDITS, audit_section, newest_audits

PROTOCOL = make_evaluation(0.5, slot_order="class-order").protocol | {"n_sequences": 100}


def audit_record(number: int, **changes: object) -> RunRecord:
    return make_record(
        number, **{"kind": "audit", "training": {}, "audit": FINDINGS, "audit_protocol": PROTOCOL, **changes}
    )


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


def test_audits_are_no_result_rows() -> None:
    assert result_rows([audit_record(1), audit_record(2, status="failed")]) == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("<!-- results:begin all -->\n<!-- results:end -->\n")
    (tmp_path / "docs").mkdir()
    name = "cml_bgnn/mini_5w1s"
    (tmp_path / "docs/audit.md").write_text(f"# A\n\n<!-- audit:begin {name} -->\nold\n<!-- audit:end -->\n\nafter\n")
    write_record(tmp_path / "results/runs", audit_record(1))
    return tmp_path


def test_rebuild_fills_audits_and_check_finds_a_hand_edit(project: Path) -> None:
    page = project / "docs/audit.md"
    assert rebuild(project, check=False) == ["README.md", "docs/audit.md", "results/summary.csv"]
    text = page.read_text()
    assert text.endswith("<!-- audit:end -->\n\nafter\n") and "old" not in text and rebuild(project, check=True) == []
    link = text.split("](")[1].split(")")[0]
    assert (page.parent / link).is_file()
    page.write_text(text.replace("**leak**", "clean"))
    assert rebuild(project, check=True) == ["docs/audit.md"]
    write_record(project / "results/runs", audit_record(2, recipe_name="cml_bgnn/other"))
    assert rebuild(project, check=False) == ["docs/audit.md"] and page.read_text() == text  # not of this recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- audit:begin cml_bgnn/mini_5w1 -->\n<!-- audit:end -->\n", "did you mean 'cml_bgnn/mini_5w1s'"),
        ("<!-- audit:begin -->\n<!-- audit:end -->\n", "names no known recipe"),
        ("<!-- audit:begin all -->\n<!-- results:end -->\n", "stands without"),
        ("<!-- audit:begin all -->\n", "has no '<!-- audit:end -->'"),
        ("<!-- audit:end -->\n", "stands without a '<!-- audit:begin NAME -->'"),
    ],
)
def test_broken_markers_are_told_and_no_page_is_written(project: Path, text: str, message: str) -> None:
    (project / "docs/audit.md").write_text(text)
    before = (project / "README.md").read_text()
    with pytest.raises(EngramError, match=message):
        rebuild(project, check=False)
    assert (project / "docs/audit.md").read_text() == text and (project / "README.md").read_text() == before
