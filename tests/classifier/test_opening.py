"""From the words of a person to an engine: methods, weights and what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import pictures

from engram.classifier import FewShotClassifier
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
