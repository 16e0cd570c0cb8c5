"""Marked sections of README and docs, rebuilt from the ledger: result tables and audits.

``<!-- results:begin NAME -->`` ... ``<!-- results:end -->`` holds tables, ``<!-- audit:begin NAME -->`` ...
``<!-- audit:end -->`` holds audits; each marker stands at the start of a line, so that a sentence may speak of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from engram.errors import EngramError
from engram.ledger import RunRecord, read_ledger
from engram.report.audits import audit_section, check_audit_section
from engram.report.tables import check_section, section_text

RUNS = Path("results/runs")
Fill = Callable[[str, Sequence[RunRecord], str], str]
Check = Callable[[str, str, Sequence[RunRecord]], None]
SECTIONS: dict[str, tuple[Fill, Check]] = {
    "results": (section_text, check_section),
    "audit": (audit_section, check_audit_section),
}


def replace_sections(kind: str, text: str, where: str, records: Sequence[RunRecord], runs: str) -> tuple[str, int]:
    """The text with each marked section of a kind rebuilt, and how many there were."""
    fill, check = SECTIONS[kind]
    begin_line = re.compile(rf"^<!-- {kind}:begin(?:[ \t]+(\S+))? -->", re.MULTILINE)
    end_mark = f"<!-- {kind}:end -->"
    end_line = re.compile(rf"^{end_mark}", re.MULTILINE)
    parts: list[str] = []
    place, count = 0, 0
    while begin := begin_line.search(text, place):
        name, end = begin.group(1) or "", end_line.search(text, begin.end())
        check(name, where, records)
        following = begin_line.search(text, begin.end())
        if end is None or (following and following.start() < end.start()):
            raise EngramError(f"{where}: '{begin.group()}' has no '{end_mark}' after it: add one where the table ends")
        if (stray := end_line.search(text, place)) and stray.start() < begin.start():
            break
        parts += [text[place : begin.end()], "\n", fill(name, records, runs), "\n", end_mark]
        place, count = end.end(), count + 1
    if end_line.search(text, place):
        raise EngramError(f"{where}: '{end_mark}' stands without a '<!-- {kind}:begin NAME -->' before it")
    return "".join([*parts, text[place:]]), count


def rebuild(root: Path, check: bool) -> list[str]:
    """Rebuild every marked section of README.md and docs/; the files that differ, relative to ``root``.

    With ``check`` nothing is written: a non-empty answer means that a committed table is out of date or hand-edited.
    """
    records, problems = read_ledger(root / RUNS)
    if problems:
        raise EngramError(f"tables are not rebuilt while records are unreadable: {'; '.join(problems)}")
    pages = [p for p in (root / "README.md", *sorted((root / "docs").rglob("*.md"))) if p.is_file()]
    rebuilt: dict[Path, str] = {}
    sections = 0
    for page in pages:
        before = after = page.read_text(encoding="utf-8")
        runs = Path(os.path.relpath(root / RUNS, page.parent)).as_posix()
        for kind in SECTIONS:
            after, count = replace_sections(kind, after, page.relative_to(root).as_posix(), records, runs)
            sections += count
        if after != before:
            rebuilt[page] = after
    if not sections:
        raise EngramError(
            f"no result table in README.md or docs/ of {root}: put '<!-- results:begin all -->' and "
            "'<!-- results:end -->' on lines of their own where it belongs"
        )
    for page, text in rebuilt.items() if not check else ():
        page.write_text(text, encoding="utf-8")
    return [page.relative_to(root).as_posix() for page in rebuilt]
