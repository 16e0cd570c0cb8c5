"""Sections of docs that studies fill."""

from __future__ import annotations

from pathlib import Path

import pytest

from engram.errors import EngramError
from engram.report.book import Book
from engram.report.sections import rebuild


def test_sections_of_docs_name_known_studies_only(tmp_path: Path) -> None:
    (tmp_path / "results/runs").mkdir(parents=True)
    (tmp_path / "README.md").write_text("<!-- study:begin tabel1 -->\n<!-- study:end -->\n")
    with pytest.raises(EngramError, match="names no known section; did you mean 'table1'"):
        rebuild(tmp_path, False)
    (tmp_path / "README.md").write_text("<!-- study:begin overview -->\n<!-- study:end -->\n")
    assert rebuild(tmp_path, False) == ["README.md", "results/summary.csv"] and rebuild(tmp_path, True) == []
    assert "`table1`" in (tmp_path / "README.md").read_text()
    assert "| Study |" in Book(tmp_path / "results/runs").study_section("overview", "")
