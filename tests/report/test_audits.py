"""An audit's tables and its figure show each finding, its verdict in words, and take the page's colours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from audit_findings import FINDINGS, audit_record, finding
from result_records import make_evaluation, make_record
from rich.console import Console

from engram.errors import EngramError
from engram.report.audits import (
    NO_AUDITS,
    audit_figure,
    audit_lines,
    audit_section,
    check_figure,
    effect_text,
    findings_table,
    newest_audits,
)
from engram.report.svg import INK, SERIES


def test_effects_are_told_in_their_unit() -> None:
    assert [effect_text(f) for f in FINDINGS] == ["3e-16", "0", "0.640", "+34.8 ± 4.8 points", ""]
    assert effect_text(finding("x", "clean", 0.01, 0.02, kind="statistical")) == "0.010 (noise up to 0.020)"


def test_the_terminal_table_has_question_effect_verdict_and_declared() -> None:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(findings_table(FINDINGS, "terminal", "Audit of CML-BGNN").terminal())
    text = console.export_text()
    for words in ("Audit of CML-BGNN", "Does noise matter?", "+34.8 ± 4.8 points", "leak", "not applicable", "yes"):
        assert words in text


def test_markdown_marks_leaks_and_escapes_bars() -> None:
    text = findings_table(FINDINGS, "docs").markdown()
    lines = text.splitlines()
    assert len(lines) == len(FINDINGS) + 2 and "**leak**" in text and "**clean**" not in text
    assert "mean change \\| 1e-3" in text


def test_the_figure_is_well_formed_and_names_every_probe_and_verdict() -> None:
    svg = audit_figure(FINDINGS, "CML-BGNN")
    root = ElementTree.fromstring(svg)
    words = ["".join(e.itertext()).strip() for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {f["probe"] for f in FINDINGS} <= set(words) and {f["verdict"] for f in FINDINGS} <= set(words)
    assert root.get("aria-label") == "Audit of CML-BGNN: 2 clean, 1 declared, 1 leak, 1 not applicable"
    assert "currentColor" in svg and not any(marker in svg for marker in (INK, *SERIES))
    assert svg == audit_figure(FINDINGS, "CML-BGNN")


def test_an_empty_audit_is_told() -> None:
    with pytest.raises(EngramError, match="no findings"):
        audit_figure([])


def test_a_report_needs_no_torch() -> None:
    code = "import engram.report.audits, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_place_that_cannot_hold_the_figure_is_refused_before_the_audit(tmp_path: Path) -> None:
    check_figure(None)
    check_figure(tmp_path / "audit.svg")
    with pytest.raises(EngramError, match=r"audit\.png cannot be written: its name must end in \.svg"):
        check_figure(tmp_path / "audit.png")
    (tmp_path / "audit.svg").write_text(audit_figure(FINDINGS, "an earlier one"))
    check_figure(tmp_path / "audit.svg")
    (tmp_path / "logo.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    with pytest.raises(EngramError, match=r"logo\.svg exists and Engram did not write it, so it is kept"):
        check_figure(tmp_path / "logo.svg")
    with pytest.raises(EngramError, match="there is no folder .*absent"):
        check_figure(tmp_path / "absent/audit.svg")


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
    assert "](../r/cml_bgnn.mini_5w1s.20260101-000001-abcdef.json)" in text and text.count("| noise |") == 1
    assert "<summary>All 5 findings</summary>" in text
    assert "not trained" in audit_section("b", records, "../r")
    overview = audit_section("all", records, "../r")
    matrix, _, folded = overview.partition("\n<summary>All 2 audits")
    assert "| CML-BGNN | 1 | **leak** in 1 of 1 | noise | company |" in matrix and "| b | 1 |" in matrix
    assert folded.count("99.9 %") == 1 and "Does noise matter?" not in overview
    assert "[`cml_bgnn/mini_5w1s`](../r/cml_bgnn.mini_5w1s.20260101-000001-abcdef.json)" in overview
    assert audit_section("all", [], "r") == NO_AUDITS


def test_the_matrix_counts_the_audits_in_which_a_probe_was_not_clean() -> None:
    clean = [finding("noise", "clean", 0.0, 0.1)]
    records = [audit_record(1), audit_record(2, recipe_name="cml_bgnn/mini_5w5s", audit=clean)]
    matrix = audit_section("all", records, "r").partition("<details")[0]
    assert "| CML-BGNN | 2 | **leak** in 1 of 2 | noise (1) | company (1) |" in matrix


def test_a_methods_page_has_a_line_for_each_recipe_audited() -> None:
    records = [audit_record(1), audit_record(2, recipe_name="egnn/mini_5w1s", method="egnn")]
    lines = audit_lines("cml_bgnn", records, "../r").splitlines()
    link = "../r/cml_bgnn.mini_5w1s.20260101-000001-abcdef.json"
    assert lines[2:] == [f"- [`cml_bgnn/mini_5w1s`]({link}), anonymous streams: **1 leak**, declared: company"]
    assert lines[0] == "Audit ([what is asked](../audit.md)): one recipe audited."
    assert audit_lines("maml", records, "../r") == ""


def test_many_audits_of_a_method_are_counted_and_folded() -> None:
    records = [audit_record(n, recipe_name=f"cml_bgnn/r{n}", audit=FINDINGS if n else []) for n in range(4)]
    text = audit_lines("cml_bgnn", records, "r")
    assert text.startswith("Audit ([what is asked](../audit.md)): 4 recipes audited, 3 with a leak.\n\n<details ")
    assert text.count("\n- [`cml_bgnn/r") == 4
