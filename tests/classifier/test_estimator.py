"""Fit, predict, remember, forget: what a person does with `FewShotClassifier`."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn import KINDS, pictures
from PIL import Image

import engram
from engram.classifier import FewShotClassifier, estimator, memory
from engram.errors import EngramError


@pytest.fixture(scope="module")
def fitted() -> FewShotClassifier:
    return FewShotClassifier(weights="photographs").fit(*pictures())


def test_five_lines(fitted: FewShotClassifier) -> None:
    X, y = pictures(4, seed=7)
    assert fitted.classes_.tolist() == sorted(KINDS)
    assert fitted.score(X, y) > 0.9
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (12, 3) and np.allclose(probabilities.sum(1), 1)
    assert (fitted.predict(X) == fitted.classes_[probabilities.argmax(1)]).all()
    assert engram.FewShotClassifier is FewShotClassifier


def test_every_kind_of_picture_gives_the_same_answer(fitted: FewShotClassifier, tmp_path: Path) -> None:
    image = pictures(1, seed=3)[0][0]
    Image.fromarray(image).save(tmp_path / "a.png")
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    kinds = [str(tmp_path / "a.png"), tmp_path / "a.png", Image.fromarray(image), image, tensor, tensor.float() / 255]
    expected = fitted.predict_proba([image])[0]
    for answer in fitted.predict_proba(kinds):
        assert np.allclose(answer, expected, atol=1e-6)
    stacked = torch.stack([tensor, tensor])
    assert np.allclose(fitted.predict_proba(stacked), expected, atol=1e-6)
    assert np.allclose(fitted.predict_proba(stacked.permute(0, 2, 3, 1).numpy()), expected, atol=1e-6)


def test_answers_are_inductive_by_default_and_transductive_by_choice(fitted: FewShotClassifier) -> None:
    X, y = pictures(3, seed=5)
    together = fitted.predict_proba(X)
    apart = np.concatenate([fitted.predict_proba([x]) for x in X])
    assert np.allclose(together, apart, atol=1e-5)
    joint = FewShotClassifier(weights="photographs", transductive=True).fit(*pictures())
    assert np.abs(joint.predict_proba(X)[0] - joint.predict_proba(X[:1])[0]).max() > 1e-4
    assert joint.score(X, y) > 0.9


@pytest.mark.parametrize("name", ["propagation_memory", "proto_net"])
def test_a_transductive_method_is_asked_about_one_picture_at_a_time(name: str) -> None:
    classifier = FewShotClassifier(name, "photographs").fit(*pictures())
    X, _ = pictures(2, seed=5)
    apart = np.concatenate([classifier.predict_proba([x]) for x in X])
    assert np.allclose(classifier.predict_proba(X), apart, atol=1e-5)


def test_reject_below_says_unknown() -> None:
    X, y = pictures()
    query = [*pictures(1)[0], np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)]
    classifier = FewShotClassifier(weights="photographs", reject_below=1.0).fit(X, y)
    assert set(classifier.predict(query)) == {"unknown"}
    classifier.set_params(reject_below=0.0)
    assert "unknown" not in classifier.predict(query)
    with pytest.raises(EngramError, match="reject_below = 2 but a probability lies between 0 and 1"):
        classifier.set_params(reject_below=2).predict(query)


@pytest.mark.parametrize("labels", [[3, 1, 2], [0.5, 1.5, 2.5], [True, False, True], [("a", 1), ("b", 2), ("a", 2)]])
def test_any_labels(labels: list) -> None:
    X, y = pictures()
    classes = dict(zip(KINDS, labels, strict=True))
    classifier = FewShotClassifier("proto_memory", "photographs").fit(X, [classes[k] for k in y])
    assert all(label in set(labels) for label in classifier.predict(X))
    assert classifier.score(X, [classes[k] for k in y]) == 1.0


@pytest.mark.parametrize(
    ("X", "y", "sentence"),
    [
        ([np.zeros((9, 9, 3), np.uint8)] * 3, ["a", "b"], "there are 3 pictures but 2 labels"),
        ([np.zeros((9, 9, 3), np.uint8)] * 3, ["a", "a", "a"], "all 3 pictures are of the class 'a': give at least 2"),
        ([np.zeros((9, 9, 3), np.uint8)] * 2, ["a", None], "label 1 of y is missing"),
        ([np.zeros((9, 9, 3), np.uint8)] * 2, ["a", float("nan")], "label 1 of y is missing"),
        ([], [], "there are 0 pictures"),
        ("one.png", ["a"], "X is one str where a list of pictures is needed"),
        (np.zeros((5, 9)), list("abcde"), r"X has the shape \(5, 9\) where pictures are"),
        ([3, 4], ["a", "b"], "picture 0 of X is a int where a path, a Pillow image or an array is needed"),
        ([np.full((9, 9, 3), -1.0)] * 2, ["a", "b"], "picture 0 of X holds float64 values that are not pixels"),
        (["no/such/file.png"] * 2, ["a", "b"], "the image no/such/file.png cannot be read"),
    ],
)
def test_bad_input_is_one_sentence(X: object, y: list, sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        FewShotClassifier("proto_memory", "photographs").fit(X, y)


def test_what_failed_changes_nothing(fitted: FewShotClassifier) -> None:
    before = fitted.memory_
    with pytest.raises(EngramError, match="cannot be read"):
        fitted.partial_fit([*pictures(1)[0], "missing.png"], ["a", "b", "c", "d"])
    with pytest.raises(EngramError, match="all 1 pictures are of the class"):
        fitted.fit(pictures(1)[0][:1], ["bolt"])
    assert fitted.memory_ is before


def test_before_fit_and_without_a_posterior() -> None:
    with pytest.raises(EngramError, match="has not seen any pictures yet: call fit"):
        FewShotClassifier(weights="photographs").predict([])
    with pytest.raises(EngramError, match="'proto_memory' has no posterior to draw from"):
        FewShotClassifier("proto_memory", "photographs").fit(*pictures(1)).uncertainty(pictures(1)[0])
    with pytest.raises(EngramError, match="no parameter 'reject_bellow'; did you mean 'reject_below'"):
        FewShotClassifier(weights="photographs").set_params(reject_bellow=0.5)


def test_no_pictures_give_no_answers(fitted: FewShotClassifier) -> None:
    assert fitted.predict_proba([]).shape == (0, 3) and fitted.uncertainty([]).total.shape == (0,)


def test_more_pictures_than_an_engine_of_pictures_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_EXACT", 8)
    with pytest.raises(EngramError, match="9 pictures are more than the 8 that 'pixel_centroid' can remember"):
        FewShotClassifier("pixel_centroid", "photographs").fit(*pictures())


def test_eight_threads_learn_and_lose_nothing() -> None:
    classifier = FewShotClassifier("proto_memory", "photographs")
    tasks = [pictures(2, (f"class {number}", "bolt"), seed=number) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda task: classifier.partial_fit(*task), tasks))
    assert sorted(classifier.classes_) == ["bolt", *(f"class {number}" for number in range(8))]
    assert sorted(classifier.memory_.counts.tolist()) == [2] * 8 + [16] and classifier.memory_.tasks.max() == 7


def test_eight_threads_get_the_same_answers_and_leave_the_random_state(fitted: FewShotClassifier) -> None:
    query = pictures(2, seed=8)[0]
    expected, state = fitted.uncertainty(query), torch.get_rng_state()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: fitted.uncertainty(query), range(24)))
    assert all(np.array_equal(a, b) for one in found for a, b in zip(one, expected, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_forked_process_answers_after_use(fitted: FewShotClassifier) -> None:
    query = pictures(1, seed=8)[0]
    expected = fitted.predict_proba(query)
    reader, writer = os.pipe()
    with estimator.LEARNING:  # as if another thread were learning just then
        if not (child := os.fork()):
            answer = fitted.partial_fit(*pictures(1, seed=4)).predict_proba(query)
            os.write(writer, answer.tobytes())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = np.frombuffer(pipe.read()).reshape(expected.shape)
    assert os.waitpid(child, 0)[1] == 0 and np.allclose(answer.sum(1), 1)
