"""What the buttons call: new contents of the page, and a visitor's own session left as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from coloured import coloured

from engram.errors import EngramError
from engram.page import actions, drawing, uploads
from engram.page.session import Session


def files(*arguments: object) -> list[str]:
    return [str(file) for file in coloured(*arguments)]  # type: ignore[arg-type]


def test_a_class_is_added_to_a_copy(session: Session, tmp_path: Path) -> None:
    new, task, cleared, name = actions.add(session, "photographs", "blue", files(tmp_path, "b", (40, 40, 220)))
    assert (len(session.pending), len(new.pending), cleared, name) == (4, 6, None, "")
    assert task == drawing.task_html(new) != drawing.task_html(session)
    first, *_ = actions.add(None, "glyphs", "a", files(tmp_path, "a", (9, 9, 9)))
    assert first.weights == "glyphs" and len(first.pending) == 2
    with pytest.raises(EngramError, match="the class has no name"):
        actions.add(session, "photographs", " ", files(tmp_path, "c", (1, 2, 3)))


def test_the_next_task_is_a_copy_too(session: Session) -> None:
    new, task, queries = actions.next_task(session, "photographs")
    assert (session.task, new.task, queries) == (1, 2, None) and "Task 2" in task
    assert len(session.pending) == len(new.thumbnails) == 4 and not session.thumbnails


def test_an_answer_and_its_layers(session: Session, tmp_path: Path) -> None:
    shown, answers, memory, layers, graph = actions.classify(
        session, "photographs", files(tmp_path, "q", (220, 40, 40))
    )
    assert answers == drawing.answers_html(shown) and memory == drawing.memory_html(shown)
    assert layers["visible"] and layers["value"] == layers["choices"][-1] == "answer"
    assert graph == actions.layer(shown, "answer") != actions.layer(shown, "labels alone")


def test_a_reset_empties_what_an_answer_fills() -> None:
    session, task, given, queries, *rest = actions.reset("glyphs")
    assert session.weights == "glyphs" and not session.pending and "No pictures in this task yet" in task
    assert given is None and queries is None and rest == actions.NO_ANSWER


def test_the_example_set_is_answered() -> None:
    session, task, queries, kind = actions.example()
    assert kind == "glyphs" and task.count("<img") == len(session.pending) == 12
    shown = actions.classify(session, kind, queries)[0]
    assert [shown.classes[c] for c in shown.probabilities.argmax(1)] == [Path(q).name.split("-")[0] for q in queries]


def test_wrong_values_past_the_form_are_a_sentence(session: Session) -> None:
    for call, sentence in (
        (lambda: actions.layer(None, "answer"), "there is no layer 'answer' to show"),
        (lambda: actions.next_task(None, "../evil"), "there are no pictures of the kind '../evil'"),
        (lambda: actions.reset(None), "there are no pictures of the kind 'None'"),  # type: ignore[arg-type]
        (lambda: actions.add(session, "photographs", None, None), "the class has no name"),  # type: ignore[arg-type]
    ):
        with pytest.raises(EngramError, match=sentence):
            call()


def test_what_is_saved_is_loaded_in_place_of_what_is_there(session: Session) -> None:
    saved = actions.save(session, "imagenet")
    assert saved["visible"] and uploads.pictures() in Path(saved["value"]).parents
    new, task, kind, *rest = actions.load([saved["value"]])
    assert new.memory.classes == ("green", "red") and kind == "imagenet" and rest == actions.NO_ANSWER
    assert "Remembered from earlier tasks: green (2), red (2)" in task
    with pytest.raises(EngramError, match="there is no file to load"):
        actions.load(None)
