"""What the page does, without a browser: tasks, questions, memory, and what people drop onto it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engram.classifier import FewShotClassifier
from engram.classifier.box import box
from engram.errors import EngramError
from engram.page import drawing
from engram.page.app import KINDS
from engram.page.session import MOST_QUERIES, Session


def coloured(folder: Path, name: str, colour: tuple[int, int, int], count: int = 2, seed: int = 0) -> list[Path]:
    rng = np.random.default_rng(seed + sum(colour))
    files = []
    for number in range(count):
        pixels = (np.array(colour) + rng.integers(-30, 30, (50, 40, 3))).clip(0, 255).astype(np.uint8)
        files.append(folder / f"{name}{seed}{number}.png")
        Image.fromarray(pixels).save(files[-1])
    return files


@pytest.fixture
def session(tmp_path: Path) -> Session:
    session = Session()
    session.add("red", coloured(tmp_path, "red", (220, 40, 40)))
    session.add("green", coloured(tmp_path, "green", (40, 200, 60)))
    return session


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


def test_names_are_text_and_never_markup(tmp_path: Path) -> None:
    session = Session()
    session.add("<script>alert(1)</script>", coloured(tmp_path, "a", (9, 9, 9)))
    session.add("b", coloured(tmp_path, "b", (200, 9, 9)))
    shown = session.ask(coloured(tmp_path, "q", (9, 9, 9), 1, 4))
    pages = (drawing.task_html(session), drawing.answers_html(shown), drawing.memory_html(shown))
    for page in (*pages, drawing.graph_html(shown, 1)):
        assert "<script>" not in page and "&lt;script&gt;" in page


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
        (lambda: session.add("a", []), "there are no pictures for 'a'"),
        (lambda: session.ask([]), "there are no pictures to ask about"),
        (lambda: session.ask([tmp_path / "x.png"] * (MOST_QUERIES + 1)), "25 questions at once are too many"),
        (lambda: session.add("a", [tmp_path / "x.png"] * 200), "204 pictures are too many for one task"),
        (lambda: Session().ask([tmp_path / "x.png"]), "no class is known and an answer needs at least 2"),
        (lambda: Session().next_task(), "task 1 has no pictures yet"),
    ):
        with pytest.raises(EngramError, match=sentence):
            call()


def test_the_page_offers_what_is_in_the_box() -> None:
    assert tuple(box()) == KINDS
