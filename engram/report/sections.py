"""Marked sections of README, docs and model cards, rebuilt from records. No number in them is typed by hand.

``<!-- results:begin NAME -->`` ... ``<!-- results:end -->`` holds tables; so do ``audit``, ``streams``, ``study``,
``claims`` (what the paper claims), ``curve`` (how a system was trained), ``trials`` (on validation classes),
``departures`` (those of a method's card), ``own`` (pictures), ``speed``, ``scale``, ``faults`` (what was tried to break
it) and ``quickstart`` (what it prints).
Each marker stands at the start of a line, so that a sentence may speak of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from engram.card import method_cards
from engram.errors import EngramError, nearest
from engram.report.audits import audit_lines, audit_section, audit_sections
from engram.report.book import LEAN, OVERVIEW, Book
from engram.report.curves import curve_figures, curve_section
from engram.report.faults import FAULTS, faults_section, soak_figure
from engram.report.measured import SPEED, speed_section
from engram.report.own_pictures import OWN, own_section
from engram.report.quickstart import NAMES, quickstart_section
from engram.report.results import SUMMARY, results_section, results_sections, summary_csv
from engram.report.scale import SECTIONS as SCALE
from engram.report.scale import scale_section
from engram.report.stream_figures import FOLDER, stream_figures, stream_picture
from engram.report.streams import PARTS, calibration_table, late_table, paired_table
from engram.report.svg import standalone
from engram.report.trials import HEADS, heads_section, trials_section
from engram.report.trials import SECTION as TRIALS
from engram.studies.schema import study_names

RUNS = Path("results/runs")
CARDS = Path("engram/weights")
"""model cards, which are pages too"""


class Kind(NamedTuple):
    """Sections of one kind."""

    names: Collection[str]
    """all that there are: a misspelt one would stay empty for ever, and nobody would notice"""
    fill: Callable[[str, str], str]
    """from the name of a section and the way from its page to the records"""


def kinds_of(book: Book) -> dict[str, Kind]:
    records, rows, folder = book.records, book.rows, book.folder

    def results(name: str, runs: str) -> str:
        """On a method's own page its audits follow."""
        return "\n\n".join(filter(None, (results_section(name, rows, runs), audit_lines(name, records, runs))))

    def streams(name: str, runs: str) -> str:
        if name == "paired":
            return paired_table(records, folder).markdown()
        return (late_table(records, runs) if name == "table" else calibration_table(records, runs)).markdown()

    return {
        "results": Kind(results_sections(records), results),
        "audit": Kind(audit_sections(records), lambda name, runs: audit_section(name, records, runs)),
        "streams": Kind(PARTS, streams),
        "study": Kind((*study_names(), OVERVIEW, LEAN), book.study_section),
        "trials": Kind(
            (TRIALS, HEADS), lambda name, runs: (heads_section if name == HEADS else trials_section)(records, runs)
        ),
        "curve": Kind(method_cards(), lambda name, runs: curve_section(name, book.curves, _figures(runs))),
        "claims": Kind(("all",), lambda name, runs: book.claims_section()),
        "departures": Kind(method_cards(), lambda name, runs: departures_section(name)),
        "own": Kind(OWN, lambda name, runs: own_section(name, runs, folder.parent / "own")),
        "faults": Kind(FAULTS, lambda name, runs: faults_section(name, runs, folder.parent)),
        "quickstart": Kind(NAMES, lambda name, runs: quickstart_section(name, rows)),
        "scale": Kind(SCALE, lambda name, runs: scale_section(name, records, runs, folder.parent / "speed")),
        "speed": Kind(SPEED, lambda name, runs: speed_section(name, records, runs, folder.parent / "speed")),
    }


def _figures(runs: str) -> str:
    """The way to the figures from a page of docs/ whose way to the records is ``runs``."""
    return f"{runs.removesuffix(RUNS.as_posix()).removeprefix('../')}{FOLDER.relative_to('docs')}"


def departures_section(name: str) -> str:
    """A numbered line for each departure, its subject bold, and one for each revision."""
    card = method_cards()[name]
    parts = [_numbered(card.departures, ". ") or "None are known."]
    if card.revisions:
        since = _numbered([revision.what for revision in card.revisions], ": ")
        parts.append(f"Changes of behaviour since the first runs, before -> after:\n\n{since}")
    return "\n\n".join(parts)


def _numbered(lines: Sequence[str], after: str) -> str:
    """``Alpha. Paper: learned.`` -> ``1. **Alpha.** Paper: learned.``; the subject ends ``after`` this mark."""
    cut = [line.partition(after) for line in lines]
    return "\n".join(f"{number}. **{head}{mark.strip()}** {rest}" for number, (head, mark, rest) in enumerate(cut, 1))


def replace_sections(kind: str, how: Kind, text: str, where: str, runs: str) -> tuple[str, int]:
    """The text with each marked section of a kind rebuilt, and how many there were."""
    begin_line = re.compile(rf"^<!-- {kind}:begin(?:[ \t]+(\S+))? -->", re.MULTILINE)
    end_mark = f"<!-- {kind}:end -->"
    end_line = re.compile(rf"^{end_mark}", re.MULTILINE)
    parts: list[str] = []
    place, count = 0, 0
    while begin := begin_line.search(text, place):
        name, end = begin.group(1) or "", end_line.search(text, begin.end())
        if name not in how.names:
            raise EngramError(f"{where}: '{kind}:begin {name}' names no known section{nearest(name, how.names)}")
        following = begin_line.search(text, begin.end())
        if end is None or (following and following.start() < end.start()):
            raise EngramError(f"{where}: '{begin.group()}' has no '{end_mark}' after it: add one where the table ends")
        if (stray := end_line.search(text, place)) and stray.start() < begin.start():
            break
        parts += [text[place : begin.end()], "\n", how.fill(name, runs), "\n", end_mark]
        place, count = end.end(), count + 1
    if end_line.search(text, place):
        raise EngramError(f"{where}: '{end_mark}' stands without a '<!-- {kind}:begin NAME -->' before it")
    return "".join([*parts, text[place:]]), count


def rebuild(root: Path, check: bool) -> list[str]:
    """Rebuild every marked section of README.md and docs/; the files that differ, relative to ``root``.

    So are the figures and the summary of all results. A record that cannot be read or does not count is
    named and left out. With ``check`` nothing is written, and such a record is refused: a non-empty answer means that a
    committed table or figure is out of date or hand-edited.
    """
    book = Book(root / RUNS, strict=check)
    places = (root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / CARDS).glob("*.md")))
    content: dict[Path, str] = {}
    sections, kinds = 0, kinds_of(book)
    for page in (p for p in places if p.is_file()):
        content[page] = page.read_text(encoding="utf-8")
        runs = Path(os.path.relpath(root / RUNS, page.parent)).as_posix()
        for kind, how in kinds.items():
            where = page.relative_to(root).as_posix()
            content[page], count = replace_sections(kind, how, content[page], where, runs)
            sections += count
    if not sections:
        raise EngramError(
            f"no result table in README.md or docs/ of {root}: put '<!-- results:begin all -->' and "
            "'<!-- results:end -->' on lines of their own where it belongs"
        )
    drawings = {**stream_figures(book.records, book.folder), **stream_picture(book.cells)}
    drawings |= soak_figure(book.folder.parent / "speed") | curve_figures(book.curves)
    content |= {root / FOLDER / name: standalone(drawing) for name, drawing in drawings.items()}
    content[root / SUMMARY] = summary_csv(book.rows)
    changed = {f: t for f, t in content.items() if not f.is_file() or f.read_text(encoding="utf-8") != t}
    for file, text in changed.items() if not check else ():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return [file.relative_to(root).as_posix() for file in changed]
