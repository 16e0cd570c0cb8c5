"""From the words of a person to an engine: methods, weights and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from drawn import pictures

from engram.classifier import FewShotClassifier
from engram.classifier.pictures import as_bytes
from engram.errors import EngramError
from engram.methods import METHODS

TRAINED = {"content_memory", "stage_one"}
"""methods with weights in the box for photographs"""


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_is_an_engine_or_says_that_it_must_be_trained(name: str) -> None:
    classifier, (X, y) = FewShotClassifier(name, "photographs"), pictures(2)
    untrained = METHODS[name].card.trainable and name not in TRAINED
    try:
        classifier.fit(X, y)
    except EngramError as error:
        assert untrained and "must be trained first" in str(error)
        return
    assert np.allclose(classifier.predict_proba(X).sum(1), 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"engine": "proto_nett"}, "there is no method 'proto_nett'; did you mean 'proto_net'"),
        ({"weights": "photograph"}, "there are no weights 'photograph'.*did you mean 'photographs'"),
        ({"weights": None}, "weights is None, which is no name, run folder or PictureEncoder"),
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


def test_the_default_is_imagenets_and_is_saved_whole(tmp_path: Path) -> None:
    X, y = pictures(2)
    classifier = FewShotClassifier().fit(X, y)
    assert classifier.weights == "imagenet" and classifier.engine_.image_shape == (3, 224, 224)
    assert classifier.memory_.items.shape == (6, 1280) and classifier.score(*pictures(1, seed=5)) == 1.0
    folder = classifier.save(tmp_path / "own")
    loaded = FewShotClassifier.load(folder)
    assert np.array_equal(loaded.predict_proba(X), classifier.predict_proba(X))
    assert np.array_equal(loaded.familiarity(X), classifier.familiarity(X))
    assert loaded.engine_.digest == classifier.engine_.digest
    program = torch.export.load(classifier.export(tmp_path / "own.pt2")).module()
    images = torch.from_numpy(np.stack([as_bytes(x, "x", (3, 224, 224), classifier.engine_.crop) for x in X[:2]]))
    answer, familiar = program(images)
    assert np.abs(answer.numpy() - classifier.predict_proba(X[:2])).max() < 1e-3
    assert np.abs(familiar.numpy() - classifier.familiarity(X[:2])).max() < 1e-3
