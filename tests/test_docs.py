"""README is short and its links lead somewhere; the reference has every public name."""

from __future__ import annotations

import re
from pathlib import Path

import engram

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
