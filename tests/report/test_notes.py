"""Notes below a table."""

from __future__ import annotations

from engram.report.notes import Notes


def test_equal_notes_are_told_once_and_marks_are_in_order() -> None:
    notes = Notes()
    assert notes.mark() == notes.mark("", "") == ""
    assert notes.mark("frozen") == " <sup>1</sup>" and notes.mark("short", "frozen") == " <sup>1, 2</sup>"
    assert notes.mark("short", "short") == " <sup>2</sup>"
    assert notes.markdown() == "<sup>1</sup> frozen.<br><sup>2</sup> short."
