"""An audit's tables and its figure show each finding, its verdict in words, and take the page's colours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from audit_findings import FINDINGS, finding
from rich.console import Console

from engram.errors import EngramError
from engram.report.audit import audit_figure, audit_table, check_figure, effect_text, findings_table
from engram.report.svg import INK, SERIES


def test_effects_are_told_in_their_unit() -> None:
    assert [effect_text(f) for f in FINDINGS] == ["3e-16", "0", "0.640", "+34.8 ± 4.8 points", ""]
    assert effect_text(finding("x", "clean", 0.01, 0.02, kind="statistical")) == "0.010 (noise up to 0.020)"


def test_the_terminal_table_has_question_effect_verdict_and_declared() -> None:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(audit_table(FINDINGS, "Audit of CML-BGNN"))
    text = console.export_text()
    for words in ("Audit of CML-BGNN", "Does noise matter?", "+34.8 ± 4.8 points", "leak", "not applicable", "yes"):
        assert words in text


def test_markdown_marks_leaks_and_escapes_bars() -> None:
    text = findings_table(FINDINGS)
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
    code = "import engram.report.audit, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_place_that_cannot_hold_the_figure_is_refused_before_the_audit(tmp_path: Path) -> None:
    check_figure(None)
    check_figure(tmp_path / "audit.svg")
    with pytest.raises(EngramError, match=r"audit\.png cannot be drawn: its name must end in \.svg"):
        check_figure(tmp_path / "audit.png")
    with pytest.raises(EngramError, match="there is no folder .*absent"):
        check_figure(tmp_path / "absent/audit.svg")
