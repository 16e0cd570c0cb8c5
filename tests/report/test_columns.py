"""A column is one definition: Markdown, terminal and HTML show it from the same list."""

from __future__ import annotations

import io

from rich.console import Console

from engram.report.columns import Column, html_table, markdown, position_columns, shown, shown_positions, terminal

COLUMNS: tuple[Column[dict[str, str]], ...] = (
    Column("Name", lambda row: row["name"]),
    Column("Figure", lambda row: row["figure"], right=True, tables=("page",)),
    Column("Remark", lambda row: row.get("remark", ""), optional=True),
)
ROWS = [{"name": "a | b", "figure": "1.00"}, {"name": "`c` <", "figure": "2.00"}]


def test_markdown_aligns_escapes_and_heads_groups() -> None:
    assert markdown(COLUMNS, [*ROWS[:1], "Group", ROWS[1]]).splitlines() == [
        "| Name | Figure |",
        "|---|--:|",
        "| a \\| b | 1.00 |",
        "| **Group** |  |",
        "| `c` < | 2.00 |",
    ]


def test_a_column_is_shown_where_it_says_and_an_optional_one_where_it_has_something() -> None:
    assert [c.name for c in shown(COLUMNS, ROWS, "list")] == ["Name"]
    assert [c.name for c in shown(COLUMNS, [*ROWS, {**ROWS[0], "remark": "x"}], "page")] == ["Name", "Figure", "Remark"]


def test_a_new_column_reaches_every_renderer() -> None:
    columns = (*COLUMNS[:2], Column[dict[str, str]]("New", lambda row: f"new of {row['name']}"))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(terminal("title", columns, ROWS))
    html = html_table(columns, {"": ROWS}, {})
    for text in (markdown(columns, ROWS), console.export_text(), html):
        assert "New" in text and "new of" in text


def test_html_draws_cells_heads_groups_and_escapes() -> None:
    html = html_table(COLUMNS[:2], {"<all>": ROWS}, {"Figure": lambda row: f"<b>{row['figure']}</b>"}, "cards")
    assert '<th scope="rowgroup" colspan="2">&lt;all&gt;</th>' in html and '<table class="cards">' in html
    assert '<th scope="row"><code>c</code> &lt;</th><td class="number" data-label="Figure"><b>2.00</b></td>' in html


def test_positions_of_a_stream() -> None:
    assert shown_positions(3) == [1, 2, 3]
    assert shown_positions(16) == [1, 2, 4, 8, 16]
    assert shown_positions(20) == [1, 2, 4, 8, 16, 20]
    columns = position_columns([1, 4], lambda row: row, "Task ", "widest")
    assert [c.name for c in columns] == ["Task 1", "Task 4", "widest"]
    assert [c.value(([0.5, None], [0.01, None, 0.02])) for c in columns] == ["50.0", "", "2.0"]
