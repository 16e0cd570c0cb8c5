"""README is short and its links lead somewhere; the reference has every public name."""

from __future__ import annotations

import re
from pathlib import Path

import engram
from engram.ledger import record_path
from engram.report.audits import newest_audits
from engram.report.book import Book

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_is_read_in_a_minute() -> None:
    assert len(README.split()) <= 900


def test_links_of_readme_lead_somewhere() -> None:
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README)]
    assert len(links) > 30
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_reference_has_every_public_class_and_call() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs/api").glob("*.md")))
    shown = set(re.findall(r"^::: (\S+)$", pages, re.MULTILINE))
    constants = {"METHODS"}
    for name, module in engram._LAZY.items():
        found = {entry for entry in shown if entry == module or entry.endswith(f".{name}")}
        assert found or name in constants, f"docs/api has no entry for engram.{name}"


def test_every_answer_and_every_newest_audit_is_linked_from_some_page() -> None:
    book, folder = Book(ROOT / "results/runs"), Path("results/runs")
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md")))
    told = {
        record_path(folder, r).as_posix() for r in (*(row.record for row in book.rows), *newest_audits(book.records))
    }
    assert len(told) > 300
    assert sorted(told - set(re.findall(r"results/runs/[^)\s]+\.json", pages))) == []
