"""Pictures by the folder, and what came of them as rows, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from drawn import KINDS, class_folders, pictures

from engram.classifier import FewShotClassifier, Uncertainty, folders, seeing
from engram.classifier.folders import Answers, answer_with, ask, find_pictures, remember_more, support_of
from engram.errors import EngramError

SHARES = np.array([[0.75, 0.25], [0.1, 0.9]])
ANSWERS = Answers(
    ("a", "b"), (Path("1.png"), Path("2.png")), ("a", "b"), SHARES, np.array([0.5, 1.0]),
    Uncertainty(*np.log(2) * np.array([[0.5, 0.4], [0.1, 0.1], [0.4, 0.3]])), ((Path("3.png"), "is empty"),),
)  # fmt: skip


def test_a_folder_of_very_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number:06d}.{'png' if number % 100 == 0 else 'txt'}" for number in reversed(range(100_000))]
    monkeypatch.setattr(folders.os, "walk", lambda path: [(str(path), [], names)])
    found = find_pictures([tmp_path])
    assert len(found) == 1000 and found == sorted(found)


def test_both_kinds_of_uncertainty_are_shares_of_the_most_that_can_be() -> None:
    first, second = ANSWERS.rows()
    assert first == {
        "file": "1.png", "class": "a", "probability": 0.75, "familiar": 0.5, "not_known": 0.1, "left_open": 0.4,
    }  # fmt: skip
    assert (second["class"], second["probability"], second["left_open"]) == ("b", 0.9, 0.3)


def test_json_and_csv_hold_every_class() -> None:
    told = json.loads(ANSWERS.to_json())
    assert told["classes"] == ["a", "b"] and told["unreadable"] == [{"file": "3.png", "why": "is empty"}]
    assert [p["probabilities"] for p in told["pictures"]] == [{"a": 0.75, "b": 0.25}, {"a": 0.1, "b": 0.9}]
    rows = list(csv.DictReader(io.StringIO(ANSWERS.to_csv())))
    assert [(row["p(a)"], row["p(b)"]) for row in rows] == [("0.75", "0.25"), ("0.1", "0.9")]


def test_damaged_pictures_are_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeing, "CHUNK", 2)  # places are counted over all chunks
    classifier = FewShotClassifier("proto_memory", "photographs").fit(*pictures(2))
    files = find_pictures([class_folders(tmp_path, 1, seed=5)])
    (tmp_path / "bad.png").write_bytes(b"")
    answers = ask(classifier, [*files[:2], tmp_path / "bad.png", files[2]])
    assert answers.files == tuple(files) and answers.labels == tuple(sorted(KINDS)) and answers.uncertainty is None
    ((file, why),) = answers.unreadable
    assert file == tmp_path / "bad.png" and "is empty" in why
    with pytest.raises(EngramError, match="none of the 1 pictures can be read; the first: .*bad.png"):
        ask(classifier, [tmp_path / "bad.png"])


def test_class_folders_are_pictures_and_labels(tmp_path: Path) -> None:
    paths, labels = support_of(class_folders(tmp_path / "own", 2))
    assert labels == [name for name in sorted(KINDS) for _ in range(2)]
    assert [path.parent.name for path in paths] == labels
    with pytest.raises(EngramError, match="the support folder .*none does not exist or is no folder"):
        support_of(tmp_path / "none")


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
        (lambda: answering(tmp_path / "model", None, "chance"), "model answers with .* already: leave --engine out"),
        (lambda: answering(tmp_path / "model", None, transductive=True), "model answers inductively"),
        (
            lambda: remember_more(tmp_path / "model", support, "chance", None),
            "model answers with 'proto_memory' already",
        ),
    ):
        with pytest.raises(EngramError, match=sentence):
            call()


def test_a_bad_picture_of_the_support_is_told_and_stops_nothing(support: Path, tmp_path: Path) -> None:
    (support / "nut" / "broken.png").write_text("no picture")
    told: list[str] = []
    counts = remember_more(tmp_path / "m", support, "proto_memory", "photographs", lambda _, why: told.append(why))
    assert len(told) == 1 and "broken.png" in told[0] and ("nut", 2, 0) in counts


def test_what_another_encoder_saw_is_not_mixed_in(support: Path, tmp_path: Path) -> None:
    remember_more(tmp_path / "m", support, "proto_memory", "photographs")
    with pytest.raises(EngramError, match="made with the weights 'photographs' and what 'imagenet' sees"):
        remember_more(tmp_path / "m", support, None, "imagenet")
    with pytest.raises(EngramError, match="made with the weights 'photographs' and what 'glyphs' sees"):
        answer_with(tmp_path / "m", None, None, "glyphs", False, None, "cpu")
    assert answer_with(tmp_path / "m", None, None, "photographs", False, None, "cpu").weights == "photographs"


def test_answers_say_where_their_confidence_comes_from(support: Path) -> None:
    classifier = answer_with(None, support, None, "photographs", False, None, "cpu")
    answers = ask(classifier, sorted(support.glob("*/*.png"))[:2])
    assert answers.confidence.startswith("stored for these weights")
    assert json.loads(answers.to_json())["confidence"] == answers.confidence
