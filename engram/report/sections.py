"""Marked sections of README, docs and model cards, rebuilt from records: results, audits, streams, pictures, speed.

``<!-- results:begin NAME -->`` ... ``<!-- results:end -->`` holds tables, ``<!-- audit:begin NAME -->`` ...
``<!-- audit:end -->`` holds audits, ``<!-- streams:begin NAME -->`` ... ``<!-- streams:end -->`` holds memory along the
stream, ``study`` holds a study, ``claims`` what the paper claims, ``own`` own pictures, ``speed`` measured times and
``api`` the reference of the code; each marker stands at the start of a line, so that a sentence may speak of it.
Figures go to docs/figures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from engram.errors import EngramError
from engram.ledger import RunRecord, read_ledger
from engram.report.api import api_section, check_api_section
from engram.report.own import check_own_section, own_section
from engram.report.speed import check_speed_section, speed_section
from engram.report.stream_figures import FOLDER as FIGURES
from engram.report.stream_figures import stream_figures
from engram.report.streams import check_stream_section, stream_section
from engram.report.study.sections import StudyBook, check_claims_section, check_study_section
from engram.report.summary import SUMMARY, summary_csv
from engram.report.tables import check_section
from engram.report.verdicts import audit_section, check_audit_section, method_section

RUNS = Path("results/runs")
CARDS = Path("engram/weights")
"""model cards, which are pages too"""
Fill = Callable[[str, Sequence[RunRecord], str], str]
Check = Callable[[str, str, Sequence[RunRecord]], None]


def sections_of(folder: Path) -> dict[str, tuple[Fill, Check]]:
    """How each kind of section is filled and checked, from the records of a folder."""
    book = StudyBook(folder)
    return {
        "results": (method_section, check_section),
        "audit": (audit_section, check_audit_section),
        "streams": (partial(stream_section, folder=folder), check_stream_section),
        "study": (book.section, check_study_section),
        "claims": (book.claims, check_claims_section),
        "api": (api_section, check_api_section),
        "own": (partial(own_section, folder=folder.parent / "own"), check_own_section),
        "speed": (partial(speed_section, folder=folder.parent / "speed"), check_speed_section),
    }


def replace_sections(
    kind: str, how: tuple[Fill, Check], text: str, where: str, records: Sequence[RunRecord], runs: str
) -> tuple[str, int]:
    """The text with each marked section of a kind rebuilt, and how many there were."""
    fill, check = how
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

    So are the figures of streams and the summary of all results. With ``check`` nothing is written: a non-empty answer
    means that a committed table or figure is out of date or hand-edited.
    """
    records, problems = read_ledger(root / RUNS)
    if problems:
        raise EngramError(f"tables are not rebuilt while records are unreadable: {'; '.join(problems)}")
    places = (root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / CARDS).glob("*.md")))
    pages = [p for p in places if p.is_file()]
    rebuilt: dict[Path, str] = {}
    sections, kinds = 0, sections_of(root / RUNS)
    for page in pages:
        before = after = page.read_text(encoding="utf-8")
        runs = Path(os.path.relpath(root / RUNS, page.parent)).as_posix()
        for kind, how in kinds.items():
            after, count = replace_sections(kind, how, after, page.relative_to(root).as_posix(), records, runs)
            sections += count
        if after != before:
            rebuilt[page] = after
    if not sections:
        raise EngramError(
            f"no result table in README.md or docs/ of {root}: put '<!-- results:begin all -->' and "
            "'<!-- results:end -->' on lines of their own where it belongs"
        )
    whole = {root / FIGURES / name: drawing for name, drawing in stream_figures(records, root / RUNS).items()}
    for file, content in {**whole, root / SUMMARY: summary_csv(records)}.items():
        if not file.is_file() or file.read_text(encoding="utf-8") != content:
            rebuilt[file] = content
    for page, text in rebuilt.items() if not check else ():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    return [page.relative_to(root).as_posix() for page in rebuilt]
