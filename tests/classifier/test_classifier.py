"""Fit, predict, remember, forget: what a person does with `FewShotClassifier`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from drawn import KINDS, pictures
from PIL import Image

import engram
from engram.classifier import FewShotClassifier, estimator
from engram.errors import EngramError
from engram.methods import METHODS

TRAINED = {"content_memory", "stage_one"}
"""methods with weights in the box for photographs"""


@pytest.fixture(scope="module")
def fitted() -> FewShotClassifier:
    return FewShotClassifier().fit(*pictures())


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
    joint = FewShotClassifier(transductive=True).fit(*pictures())
    assert np.abs(joint.predict_proba(X)[0] - joint.predict_proba(X[:1])[0]).max() > 1e-4
    assert joint.score(X, y) > 0.9


@pytest.mark.parametrize("name", ["propagation_memory", "proto_net"])
def test_a_transductive_method_is_asked_about_one_picture_at_a_time(name: str) -> None:
    classifier = FewShotClassifier(name).fit(*pictures())
    X, _ = pictures(2, seed=5)
    apart = np.concatenate([classifier.predict_proba([x]) for x in X])
    assert np.allclose(classifier.predict_proba(X), apart, atol=1e-5)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_is_an_engine_or_says_that_it_must_be_trained(name: str) -> None:
    classifier, (X, y) = FewShotClassifier(name), pictures(2)
    untrained = METHODS[name].card.trainable and name not in TRAINED
    try:
        classifier.fit(X, y)
    except EngramError as error:
        assert untrained and "must be trained first" in str(error)
        return
    assert np.allclose(classifier.predict_proba(X).sum(1), 1)


def test_partial_fit_adds_pictures_and_classes_and_keeps_the_columns() -> None:
    X, y = pictures(2, ("nut", "washer"))
    classifier = FewShotClassifier("proto_memory").partial_fit(X, y)
    classifier.partial_fit(*pictures(1, ("bolt", "nut"), seed=9))
    assert classifier.classes_.tolist() == ["nut", "washer", "bolt"]
    assert classifier.memory_.counts.tolist() == [3, 2, 1]
    assert classifier.memory_.tasks.tolist() == [0, 0, 0, 0, 1, 1]
    at_once = FewShotClassifier("proto_memory").fit(X + pictures(1, ("bolt", "nut"), seed=9)[0], [*y, "bolt", "nut"])
    columns = [at_once.classes_.tolist().index(name) for name in classifier.classes_]
    query, _ = pictures(2, seed=4)
    assert np.allclose(classifier.predict_proba(query), at_once.predict_proba(query)[:, columns], atol=1e-6)


def test_more_pictures_leave_less_that_the_model_does_not_know() -> None:
    query, _ = pictures(2, seed=4)
    few = FewShotClassifier().fit(*pictures(1))
    before = few.uncertainty(query)
    after = few.partial_fit(*pictures(8, seed=6)).uncertainty(query)
    assert np.allclose(before.total, before.epistemic + before.aleatoric)
    assert (before.epistemic >= 0).all() and before.total.max() <= np.log(3) + 1e-9
    assert after.epistemic.mean() < 0.5 * before.epistemic.mean()
    assert np.array_equal(few.uncertainty(query).total, after.total)  # the same draws every time


def test_forgetting() -> None:
    classifier = FewShotClassifier("proto_memory").fit(*pictures())
    classifier.forget("nut")
    assert classifier.classes_.tolist() == ["bolt", "washer"]
    alike = FewShotClassifier("proto_memory").fit(*pictures(kinds=("bolt", "washer"), seed=0))
    assert classifier.memory_.labels.tolist() == alike.memory_.labels.tolist()
    with pytest.raises(EngramError, match="there is no class 'nutt' to forget; known: bolt, washer"):
        classifier.forget("nutt")
    classifier.forget("bolt")
    with pytest.raises(EngramError, match="only 1 class is remembered and an answer needs 2"):
        classifier.predict(pictures(1)[0])


def test_capacity_forgets_the_oldest_task_of_a_class_first() -> None:
    classifier = FewShotClassifier("proto_memory", capacity=3)
    for seed in range(3):
        classifier.partial_fit(*pictures(2, ("bolt", "nut"), seed=seed))
    classifier.partial_fit(*pictures(1, ("bolt",), seed=9))
    assert classifier.memory_.counts.tolist() == [3, 2]
    assert classifier.memory_.tasks.tolist() == [2, 2, 2, 2, 3]


def test_reject_below_says_unknown() -> None:
    X, y = pictures()
    query = [*pictures(1)[0], np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)]
    classifier = FewShotClassifier(reject_below=1.0).fit(X, y)
    assert set(classifier.predict(query)) == {"unknown"}
    classifier.set_params(reject_below=0.0)
    assert "unknown" not in classifier.predict(query)
    with pytest.raises(EngramError, match="reject_below = 2 but a probability lies between 0 and 1"):
        classifier.set_params(reject_below=2).predict(query)


@pytest.mark.parametrize("labels", [[3, 1, 2], [0.5, 1.5, 2.5], [True, False, True], [("a", 1), ("b", 2), ("a", 2)]])
def test_any_labels(labels: list) -> None:
    X, y = pictures()
    classes = dict(zip(KINDS, labels, strict=True))
    classifier = FewShotClassifier("proto_memory").fit(X, [classes[k] for k in y])
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
        FewShotClassifier("proto_memory").fit(X, y)


def test_what_failed_changes_nothing(fitted: FewShotClassifier) -> None:
    before = fitted.memory_
    with pytest.raises(EngramError, match="cannot be read"):
        fitted.partial_fit([*pictures(1)[0], "missing.png"], ["a", "b", "c", "d"])
    with pytest.raises(EngramError, match="all 1 pictures are of the class"):
        fitted.fit(pictures(1)[0][:1], ["bolt"])
    assert fitted.memory_ is before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"engine": "proto_nett"}, "there is no method 'proto_nett'; did you mean 'proto_net'"),
        ({"weights": "photograph"}, "there are no weights 'photograph'.*did you mean 'photographs'"),
        ({"engine": "egnn"}, "'egnn' has [0-9]+ weights that must be trained first"),
        ({"engine": "runs/mine"}, "the engine 'runs/mine' is a folder: give it as weights"),
        ({"capacity": 0}, "capacity = 0 but at least 1"),
        ({"engine": "proto_memory", "settings": {"temprature": 1.0}}, "temprature"),
        ({"device": "tpu"}, "there is no device 'tpu'"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments: dict, sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        FewShotClassifier(**arguments).fit(*pictures(1))


def test_before_fit_and_without_a_posterior() -> None:
    with pytest.raises(EngramError, match="has not seen any pictures yet: call fit"):
        FewShotClassifier().predict([])
    with pytest.raises(EngramError, match="'proto_memory' has no posterior to draw from"):
        FewShotClassifier("proto_memory").fit(*pictures(1)).uncertainty(pictures(1)[0])
    with pytest.raises(EngramError, match="no parameter 'reject_bellow'; did you mean 'reject_below'"):
        FewShotClassifier().set_params(reject_bellow=0.5)


def test_no_pictures_give_no_answers(fitted: FewShotClassifier) -> None:
    assert fitted.predict_proba([]).shape == (0, 3) and fitted.uncertainty([]).total.shape == (0,)


def test_more_pictures_than_a_graph_can_hold(monkeypatch: pytest.MonkeyPatch, fitted: FewShotClassifier) -> None:
    images, labels = pictures(1)
    monkeypatch.setattr(estimator, "MOST_PICTURES", len(fitted.memory_.labels) + len(labels) - 1)
    with pytest.raises(EngramError, match=r"[0-9]+ pictures are more than the [0-9]+ that can be remembered"):
        fitted.partial_fit(images, labels)
