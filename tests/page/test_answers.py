"""The page of answers: self-contained, names never markup, remembered pictures where they lie as they were."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from drawn import KINDS, class_folders, pictures

from engram.classifier import FewShotClassifier
from engram.classifier.folders import ask, find_pictures, support_of
from engram.errors import EngramError
from engram.page import answers as pages
from engram.page.answers import answers_page, check_page, map_svg, write_page

ENGINE = ("content_memory", "photographs")


@pytest.fixture
def support(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    return class_folders(tmp_path / "support", 2)


def test_answers_with_what_they_look_like_and_a_map(support: Path, tmp_path: Path) -> None:
    new = class_folders(tmp_path / "new", 1, seed=5)
    (new / "<b>x.png").write_bytes((new / KINDS[0] / "00.png").read_bytes())
    classifier = FewShotClassifier(*ENGINE).fit(*support_of(support))
    answers = ask(classifier, find_pictures([new]))
    page = answers_page(classifier, answers)
    assert page.count("<img") == 4 + 4 * 4 + 4, "asked about, four alike for each, and all four to label"
    assert "&lt;b&gt;x.png" in page and "<b>x.png" not in page
    assert not re.search(r'(?:src|href)="(?!data:|#)', page) and "<script" not in page
    assert f"Confidence: {answers.confidence}." in page and "stored for these weights" in answers.confidence
    assert page.count("<circle") == 6 + 4 and all(f">{kind}</text>" in page for kind in KINDS)
    (support / KINDS[0] / "00.png").write_bytes((support / KINDS[1] / "01.png").read_bytes())
    for file in (support / KINDS[1]).iterdir():
        file.unlink()
    assert answers_page(classifier, answers).count("<img") < page.count("<img"), "changed or gone: not shown"


def test_a_name_that_is_no_text_is_written_as_it_can_be(support: Path, tmp_path: Path) -> None:
    new = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.png"))
    new.write_bytes((support / KINDS[0] / "00.png").read_bytes())
    classifier = FewShotClassifier(*ENGINE).fit(*support_of(support))
    write_page(tmp_path / "page.html", classifier, ask(classifier, [new]))
    assert r"bad\udcff.png" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_pictures_that_came_as_arrays_are_named_alone(support: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = FewShotClassifier(*ENGINE).fit(*pictures(2))
    answers = ask(classifier, find_pictures([support]))
    monkeypatch.setattr(pages, "MOST", 2)
    page = answers_page(classifier, answers)
    assert page.count("<img") == 2 + len(answers.files) and "The first 2 of 6 pictures are shown." in page


def test_a_memory_of_equal_pictures_has_a_map(support: Path) -> None:
    images, _ = pictures(1)
    classifier = FewShotClassifier(*ENGINE).fit([images[0], images[0]], ["a", "b"])
    assert "nan" not in map_svg(classifier, ("a", "b"), classifier.see(images))


def test_only_a_page_of_answers_is_written_over(support: Path, tmp_path: Path) -> None:
    classifier = FewShotClassifier(*ENGINE).fit(*support_of(support))
    for name, content in (("mine.html", "<title>Mine</title>"), ("mine.txt", "mine")):
        (tmp_path / name).write_text(content)
        with pytest.raises(EngramError, match="mine"):
            check_page(tmp_path / name)
    write_page(tmp_path / "page.html", classifier, ask(classifier, find_pictures([support])))
    check_page(tmp_path / "page.html")


def test_a_place_that_cannot_be_written_is_a_sentence(support: Path, tmp_path: Path) -> None:
    classifier = FewShotClassifier(*ENGINE).fit(*support_of(support))
    with pytest.raises(EngramError, match="page.html cannot be written: there is no folder .*none"):
        check_page(tmp_path / "none" / "page.html")
    with pytest.raises(EngramError, match="page.html cannot be written .*: name another file"):
        write_page(tmp_path / "none" / "page.html", classifier, ask(classifier, find_pictures([support])))
