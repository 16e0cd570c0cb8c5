"""The report of all studies: whole, fast, without torch, without network."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from subprocess import run

import pytest
from study_ledger import add_record, write_study

from engram.report.report_page import write_report
from engram.studies import load_study, study_names
from engram.studies.jobs import jobs_of

VOID = {"meta", "br", "path", "use", "rect", "image", "hr"}


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def full_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 records: every job of every study that has a recipe, three seeds."""
    folder, number = tmp_path_factory.mktemp("full") / "runs", 0
    studies = [load_study(name) for name in study_names()]
    for scale in ("short", "paper"):
        for job in jobs_of(studies, scale, (111, 222, 333))[0]:
            for ask in job.asks:
                if number < 300:
                    add_record(
                        folder, job.recipe, 0.5 + 0.001 * (number % 200), seed=job.recipe.train.seed, sequences=30,
                        ask=dict(ask) if ask else None, number=number,
                    )  # fmt: skip
                    number += 1
    return folder


def test_the_report_of_300_records_is_whole_fast_and_needs_no_torch(full_ledger: Path, tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib, engram.report.report_page as r; "
        f"r.write_report((), pathlib.Path({str(full_ledger)!r}), pathlib.Path({str(tmp_path / 'report.html')!r})); "
        "print('torch' in sys.modules, time.process_time())"
    )
    torch, seconds = run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert torch == "False" and float(seconds) < 10
    page = (tmp_path / "report.html").read_text()
    tags = _Tags()
    tags.feed(page)
    assert not tags.open
    assert not re.search(r'(src|href)="(https?:)?//|@import|<script', page)  # nothing from the network
    for words in ("What the paper claims", "Table 4", "over training", "validation edge accuracy", "Cost against"):
        assert words in page
    assert page.count("<svg") > 20 and "prefers-color-scheme: dark" in page and "max-width: 720px" in page


def test_a_study_of_ones_own_stands_in_the_report(tmp_path: Path) -> None:
    row = 'label = "my row"\nshort = "proto_net/glyphs_quick"\ncells = [{ column = "1-shot" }]'
    mine = load_study(str(write_study(tmp_path / "mine.toml", row)))
    add_record(tmp_path / "runs", "proto_net/glyphs_quick")
    page = write_report((mine,), tmp_path / "runs", tmp_path / "r.html").read_text()
    assert "my row" in page and "engram reproduce mine.toml" in page
