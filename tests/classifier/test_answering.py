"""A classifier from class folders or from a saved model; a model is added to and keeps its engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn import KINDS, class_folders

from engram.classifier import FewShotClassifier
from engram.classifier.answering import answer_with, remember_more
from engram.errors import EngramError


@pytest.fixture
def support(tmp_path: Path) -> Path:
    return class_folders(tmp_path / "support", 2)


def answering(
    model: Path | None,
    support: Path | None,
    engine: str | None = None,
    transductive: bool = False,
    reject_below: float | None = None,
) -> FewShotClassifier:
    return answer_with(model, support, engine, None, transductive, reject_below, "cpu")


def test_pictures_are_counted_before_and_after(support: Path, tmp_path: Path) -> None:
    first = remember_more(tmp_path / "model", support, "proto_memory", None)
    assert first == [(name, 2, 0) for name in sorted(KINDS)]
    more = class_folders(tmp_path / "more", 1, ("bolt", "rivet"), seed=3)
    again = remember_more(tmp_path / "model", more, None, None)
    assert again == [("bolt", 3, 2), ("nut", 2, 2), ("washer", 2, 2), ("rivet", 1, 0)]


def test_a_model_answers_as_it_was_saved(support: Path, tmp_path: Path) -> None:
    remember_more(tmp_path / "model", support, "proto_memory", None)
    loaded, fitted = answering(tmp_path / "model", None), answering(None, support, "proto_memory")
    files = sorted(support.glob("*/*.png"))
    assert (loaded.predict_proba(files) == fitted.predict_proba(files)).all()
    assert answering(tmp_path / "model", None, reject_below=1.0).predict(files[:1]).tolist() == ["unknown"]


def test_what_contradicts_a_model_is_refused(support: Path, tmp_path: Path) -> None:
    remember_more(tmp_path / "model", support, "proto_memory", None)
    for call, sentence in (
        (lambda: answering(None, None), "give either --support with class folders or --model"),
        (lambda: answering(tmp_path / "model", support), "give either --support with class folders or --model"),
        (lambda: answering(tmp_path / "model", None, "chance"), "model has its engine and weights already"),
        (lambda: answering(tmp_path / "model", None, transductive=True), "model answers inductively"),
        (
            lambda: remember_more(tmp_path / "model", support, "chance", None),
            "model has its engine and weights already",
        ),
    ):
        with pytest.raises(EngramError, match=sentence):
            call()
