"""What the page does, without a browser: tasks, questions, memory, and what people drop onto it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from shutil import make_archive

import numpy as np
import pytest
from coloured import coloured
from PIL import Image

from engram.classifier import FewShotClassifier
from engram.errors import EngramError
from engram.page import drawing
from engram.page import session as sessions
from engram.page.session import MOST_QUERIES, Session


def test_the_answer_is_the_classifiers(session: Session, tmp_path: Path) -> None:
    query = coloured(tmp_path, "q", (120, 120, 60), 2, 3)
    support = [*coloured(tmp_path, "red", (220, 40, 40)), *coloured(tmp_path, "green", (40, 200, 60))]
    classifier = FewShotClassifier().fit(support, ["red", "red", "green", "green"])
    shown = session.ask(query)
    columns = [classifier.classes_.tolist().index(name) for name in shown.classes]
    assert np.allclose(shown.probabilities, classifier.predict_proba(query)[:, columns], atol=1e-6)


def test_the_next_task_carries_the_memory_on(session: Session, tmp_path: Path) -> None:
    session.next_task()
    assert session.task == 2 and "Remembered from earlier tasks: green (2), red (2)" in drawing.task_html(session)
    session.add("blue", coloured(tmp_path, "blue", (40, 40, 220)))
    session.add("red", coloured(tmp_path, "more", (220, 40, 40), 1, 5))
    shown = session.ask(coloured(tmp_path, "q", (40, 40, 220), 1, 7))
    assert shown.classes == ("green", "red", "blue") and shown.classes[int(shown.probabilities.argmax())] == "blue"
    table = drawing.memory_html(shown)
    assert "<th>red</th><td>1</td><td>2</td><td>67%</td>" in table and "<th>blue</th><td>2</td><td>0</td>" in table
    assert drawing.graph_html(shown, 1).count("task 1") == 4 * 2  # label and title of each remembered picture


def test_a_picture_that_is_dropped_twice_counts_once(session: Session, tmp_path: Path) -> None:
    red, more = coloured(tmp_path, "red", (220, 40, 40)), coloured(tmp_path, "more", (220, 40, 40), 1, 5)
    with pytest.raises(EngramError, match="the class 'red' has these pictures already: drop others"):
        session.add("red", red)
    session.add("red", [*red, *more, *more])
    assert len(session.pending) == len(session.pending_thumbnails) == 5
    session.next_task()
    with pytest.raises(EngramError, match="has these pictures already"):
        session.add("red", more)
    session.add("blue", more)  # another class may have it
    assert len(session.ask(more).supports) == 6


def test_answers_say_where_confidence_comes_from_and_that_photographs_are_no_drawings(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (4, 28, 28), dtype=np.uint8)
    files = [tmp_path / f"{number}.png" for number in range(4)]
    for file, pixels in zip(files, noise, strict=True):
        Image.fromarray(pixels).save(file)
    drawings = Session("glyphs")
    drawings.add("a", files[:1])
    drawings.add("b", files[1:2])
    strange, confidence = drawings.ask(files[2:]).notes
    assert "look like photographs" in strange and "a guess" in confidence
    assert "look like photographs" in drawing.answers_html(drawings.ask(files[2:]))


def bomb(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.png", b"\0" * 20_000_000)
    return folder / "bomb.zip"


def test_wrong_files_are_a_sentence_and_change_nothing(session: Session, tmp_path: Path) -> None:
    script, good = tmp_path / "evil.png", coloured(tmp_path, "good", (1, 2, 3), 1)
    script.write_text("#!/bin/sh\ntouch executed\n")
    before = list(session.pending)
    for file in (script, bomb(tmp_path)):
        with pytest.raises(EngramError, match=f"{file.name} is not an image, whatever its name says"):
            session.add("blue", [*good, file])
        with pytest.raises(EngramError, match="is not an image"):
            session.ask([file])
    assert session.pending == before and not (tmp_path / "executed").exists()


def test_other_bad_input(session: Session, tmp_path: Path) -> None:
    for call, sentence in (
        (lambda: session.add("  ", [tmp_path]), "the class has no name"),
        (lambda: session.add(None, [tmp_path]), "the class has no name"),  # type: ignore[arg-type]
        (lambda: session.add("a" * 61, [tmp_path]), "the name of the class has 61 characters: choose one of up to 60"),
        (lambda: session.add("a", []), "there are no pictures for 'a'"),
        (lambda: session.ask([]), "there are no pictures to ask about"),
        (lambda: session.ask([tmp_path / "x.png"] * (MOST_QUERIES + 1)), "25 questions at once are too many"),
        (lambda: session.add("a", [tmp_path / "x.png"] * 200), "204 pictures are too many for one task"),
        (lambda: Session().ask([tmp_path / "x.png"]), "no class is known and an answer needs at least 2"),
        (lambda: Session().next_task(), "task 1 has no pictures yet"),
    ):
        with pytest.raises(EngramError, match=sentence):
            call()


def test_a_visitor_cannot_fill_the_memory(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engram.page.session.MOST_REMEMBERED", 5)
    session.next_task()
    with pytest.raises(EngramError, match="6 pictures are more than the 5 that this page remembers"):
        session.add("blue", coloured(tmp_path, "blue", (40, 40, 220)))


def test_what_is_saved_is_loaded_and_answers_the_same(session: Session, tmp_path: Path) -> None:
    query = coloured(tmp_path, "q", (120, 120, 60), 2, 3)
    before, file = session.ask(query), session.save(tmp_path)
    again = Session.load(file)
    assert np.allclose(again.ask(query).probabilities, before.probabilities, atol=1e-5)
    assert (again.task, again.weights, len(again.thumbnails)) == (2, "imagenet", 4)
    with zipfile.ZipFile(file) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".png", ".jpg"))], "no pictures"
        archive.extractall(tmp_path / "model")
    assert FewShotClassifier.load(tmp_path / "model").classes_.tolist() == ["green", "red"]


def test_what_cannot_be_loaded_or_saved_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.zip").write_text("no zip")
    other = FewShotClassifier("proto_net", "photographs").fit(coloured(tmp_path, "a", (1, 2, 3)), ["a", "b"])
    other.set_params(weights="elsewhere").save(tmp_path / "other")
    made = Path(make_archive(str(tmp_path / "made"), "zip", tmp_path / "other"))
    for call, sentence in (
        (lambda: Session().save(tmp_path), "there is nothing to save yet"),
        (lambda: Session.load(tmp_path / "text.zip"), "text.zip is not a model that was saved"),
        (lambda: Session.load(bomb(tmp_path)), "no saved classifier|is not a saved classifier|does not exist"),
        (lambda: Session.load(made), "was made with the weights 'elsewhere', which this page has not"),
    ):
        with pytest.raises(EngramError, match=sentence):
            call()
    monkeypatch.setattr(sessions, "MOST_BYTES", 1000)
    with pytest.raises(EngramError, match="bomb.zip is not a model that was saved .it announces"):
        Session.load(bomb(tmp_path))


def test_what_is_not_familiar_is_unknown(session: Session, tmp_path: Path) -> None:
    query = coloured(tmp_path, "q", (220, 40, 40), 1, 7)
    assert session.ask(query).labels == ("red",) and session.ask(query, 1.0).labels == ("unknown",)
    shown = session.ask(query)
    assert shown.alike.shape == (1, 4) and shown.classes[int(shown.memory.labels[shown.alike[0, 0]])] == "red"
    assert drawing.answers_html(shown).count("<img") == 1 + 4


def test_the_page_says_what_to_label_first(session: Session, tmp_path: Path) -> None:
    query = [*coloured(tmp_path, "q", (220, 40, 40), 1, 7), *coloured(tmp_path, "r", (40, 40, 220), 1, 7)]
    shown = session.ask(query)
    assert sorted(shown.teaching) == [0, 1]
    first, second = (part.split("to label: number ")[1][0] for part in drawing.answers_html(shown).split("query ")[1:])
    assert (int(first), int(second)) == (shown.teaching.index(0) + 1, shown.teaching.index(1) + 1)
