"""A column is one definition: Markdown, terminal and HTML show it from the same list."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from engram.report.table import Column, Notes, Opened, Table, folded, headed, position_columns, shown_positions

COLUMNS: tuple[Column[dict[str, str]], ...] = (
    Column("Name", lambda row: row["name"]),
    Column("Figure", lambda row: row["figure"], right=True, places=("page",)),
    Column("Remark", lambda row: row.get("remark", ""), optional=True),
)
ROWS = [{"name": "a | b", "figure": "1.00"}, {"name": "`c` <", "figure": "2.00"}]


def test_markdown_aligns_escapes_and_heads_groups() -> None:
    assert Table(COLUMNS, [*ROWS[:1], "Group", ROWS[1]]).markdown().splitlines() == [
        "| Name | Figure |",
        "|---|--:|",
        "| a \\| b | 1.00 |",
        "| **Group** |  |",
        "| `c` < | 2.00 |",
    ]


def test_a_column_is_shown_where_it_says_and_an_optional_one_where_it_has_something() -> None:
    assert [c.name for c in Table(COLUMNS, ROWS, "list").shown] == ["Name"]
    told = Table(COLUMNS, [*ROWS, {**ROWS[0], "remark": "x"}], "page")
    assert [c.name for c in told.shown] == ["Name", "Figure", "Remark"]


def test_a_new_column_reaches_every_renderer() -> None:
    columns = (*COLUMNS[:2], Column[dict[str, str]]("New", lambda row: f"new of {row['name']}"))
    console = Console(width=80, record=True, file=io.StringIO())
    table = Table(columns, ROWS, title="title")
    console.print(table.terminal())
    for text in (table.markdown(), console.export_text(), table.html(), table.csv(), table.text()):
        assert "New" in text and "new of" in text


def test_html_draws_cells_heads_groups_and_escapes() -> None:
    drawn = replace(COLUMNS[1], html=lambda row: f"<b>{row['figure']}</b>")
    html = Table((COLUMNS[0], drawn), headed(ROWS, lambda row: "<all>")).html("cards")
    assert html.count("rowgroup") == html.count("<tbody>") == 1
    assert '<th scope="rowgroup" colspan="2">&lt;all&gt;</th>' in html and '<table class="cards">' in html
    assert '<th scope="row"><code>c</code> &lt;</th><td class="number" data-label="Figure"><b>2.00</b></td>' in html


def test_positions_of_a_stream() -> None:
    assert shown_positions(3) == [1, 2, 3]
    assert shown_positions(16) == [1, 2, 4, 8, 16]
    assert shown_positions(20) == [1, 2, 4, 8, 16, 20]
    columns = position_columns([1, 4], lambda row: row, "Task ", "widest")
    assert [c.name for c in columns] == ["Task 1", "Task 4", "widest"]
    assert [c.value(([0.5, None], [0.01, None, 0.02])) for c in columns] == ["50.0", "", "2.0"]


def test_title_and_note_stand_around_a_table_and_an_empty_one_says_so() -> None:
    table = Table(COLUMNS, ROWS, title="Above:", note="Below.", empty="Nothing yet.")
    assert table.markdown().startswith("Above:\n\n| Name |") and table.markdown().endswith("|\n\nBelow.")
    assert replace(table, rows=[]).markdown() == "Nothing yet."


def test_what_is_folded_away_is_still_markdown_on_the_site() -> None:
    markdown = pytest.importorskip("markdown")
    first, rest = Table(COLUMNS, ROWS[:1], note="All."), Table(COLUMNS, ROWS[1:])
    text = Opened(first, rest, "1 more").markdown()
    assert text.index("All.") < text.index("<summary>1 more</summary>") < text.index("2.00")
    html = markdown.markdown(text, extensions=["md_in_html", "tables"])
    assert html.count("<table>") == 2 and "| 2.00 |" not in html
    alone = Opened(replace(first, rows=[]), rest, "1 more")
    assert (
        alone.markdown() == rest.markdown() and Opened(first, replace(rest, rows=[]), "").markdown() == first.markdown()
    )


def test_what_all_rows_say_is_told_once_below() -> None:
    columns = (COLUMNS[0], Column[dict[str, str]]("Device", lambda row: row.get("device", "cpu"), once=True))
    assert Table(columns, ROWS, note="Note.").markdown().endswith("| `c` < |\n\nIn every row: Device cpu. Note.")
    mixed = Table(columns, [*ROWS, {"name": "d", "device": "gpu"}])
    assert "Device |" in mixed.markdown() and "In every row" not in mixed.markdown()
    assert "| a \\| b | cpu |" in Table(columns, ROWS[:1]).markdown()  # a single row keeps it


def test_groups_are_headed_once_and_rows_without_a_group_not_at_all() -> None:
    assert headed([1, 2, 30, 40, 5], lambda n: "tens" if n > 9 else "") == [1, 2, "tens", 30, 40, 5]
    rows = [{"name": "x", "figure": ""}]
    assert '<td class="empty"></td>' in Table(COLUMNS, rows).html()


def test_plain_lines_are_aligned() -> None:
    assert Table(COLUMNS[:2], ROWS).text().splitlines() == ["Name   Figure", "a | b    1.00", "`c` <    2.00"]


def test_equal_notes_are_told_once_and_marks_are_in_order() -> None:
    notes = Notes()
    assert notes.mark() == notes.mark("", "") == ""
    assert notes.mark("frozen") == " <sup>1</sup>" and notes.mark("short", "frozen") == " <sup>1, 2</sup>"
    assert notes.mark("short", "short") == " <sup>2</sup>"
    assert notes.markdown() == "<sup>1</sup> frozen.<br><sup>2</sup> short."


def test_what_is_folded_is_markdown_still() -> None:
    assert folded("a table", "| a |") == '<details markdown="1">\n<summary>a table</summary>\n\n| a |\n\n</details>'


def test_a_cell_is_asked_a_few_times_however_many_rows_there_are() -> None:
    asked: list[int] = []
    counted = Column[int]("n", lambda row: asked.append(row) or str(row))  # type: ignore[func-returns-value]
    table = Table((counted,), range(100))
    for drawn in (table.terminal, table.markdown, table.html, table.csv, table.text):
        asked.clear()
        drawn()
        assert len(asked) <= 300, drawn.__name__
