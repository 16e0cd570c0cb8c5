"""What is drawn of an answer: bars, the graph, the table of memory; names never become markup."""

from __future__ import annotations

from pathlib import Path

from coloured import coloured

from engram.page import drawing
from engram.page.session import Session


def test_a_question_and_what_is_drawn_of_it(session: Session, tmp_path: Path) -> None:
    queries = [*coloured(tmp_path, "q", (220, 40, 40), 1, 7), *coloured(tmp_path, "r", (40, 200, 60), 1, 7)]
    shown = session.ask(queries)
    assert [shown.classes[c] for c in shown.probabilities.argmax(1)] == ["red", "green"]
    assert (shown.spread[0] <= shown.spread[1]).all() and shown.edges.shape[1:] == (2, 4)
    page = drawing.answers_html(shown)
    assert page.count("engram-answer") == 2 and page.count("<line") == 4
    layers = drawing.layers_of(shown)
    assert layers[0] == "labels alone" and layers[-1] == "answer"
    start, end = drawing.graph_html(shown, 0), drawing.graph_html(shown, len(layers) - 1)
    assert start.count('stroke-width="3.50"') == 8 and start.count("<image") == 6  # every edge one half
    assert end != start and end.count("<image") == 6


def test_names_are_text_and_never_markup(tmp_path: Path) -> None:
    session = Session()
    session.add("<script>alert(1)</script>", coloured(tmp_path, "a", (9, 9, 9)))
    session.add("b", coloured(tmp_path, "b", (200, 9, 9)))
    shown = session.ask(coloured(tmp_path, "q", (9, 9, 9), 1, 4))
    pages = (drawing.task_html(session), drawing.answers_html(shown), drawing.memory_html(shown))
    for page in (*pages, drawing.graph_html(shown, 1)):
        assert "<script>" not in page and "&lt;script&gt;" in page
