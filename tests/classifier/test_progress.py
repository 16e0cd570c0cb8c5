"""A bar where there is a terminal and patience ends; the parts are the same with and without."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from engram.classifier import progress


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    out = io.StringIO()

    def console(**_: Any) -> Console:
        return Console(file=out, force_terminal=True, width=80)

    monkeypatch.setattr(progress, "Console", console)
    return out


def test_a_bar_counts_what_the_parts_hold(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    assert list(progress.watched(["ab", "cde"], 5, "pictures")) == ["ab", "cde"]
    assert "pictures" in terminal.getvalue() and "5/5" in terminal.getvalue()


def test_what_is_quick_shows_no_bar(terminal: io.StringIO) -> None:
    assert list(progress.watched(["ab", "cde"], 5, "pictures")) == ["ab", "cde"]
    assert not terminal.getvalue()


def test_elsewhere_nothing_is_written(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    assert list(progress.watched(["ab"], 2, "pictures")) == ["ab"]
    assert capfd.readouterr() == ("", "")
