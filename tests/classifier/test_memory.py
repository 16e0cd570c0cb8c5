"""What is remembered: tasks in order, classes with their numbers, and what makes room for more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from drawn import pictures

from engram.classifier import FewShotClassifier
from engram.classifier.memory import as_labels, in_order, nothing
from engram.errors import EngramError


def test_partial_fit_adds_pictures_and_classes_and_keeps_the_columns() -> None:
    X, y = pictures(2, ("nut", "washer"))
    classifier = FewShotClassifier("proto_memory", "photographs").partial_fit(X, y)
    classifier.partial_fit(*pictures(1, ("bolt", "nut"), seed=9))
    assert classifier.classes_.tolist() == ["nut", "washer", "bolt"]
    assert classifier.memory_.counts.tolist() == [3, 2, 1]
    assert classifier.memory_.tasks.tolist() == [0, 0, 0, 0, 1, 1]
    at_once = FewShotClassifier("proto_memory", "photographs").fit(
        X + pictures(1, ("bolt", "nut"), seed=9)[0], [*y, "bolt", "nut"]
    )
    columns = [at_once.classes_.tolist().index(name) for name in classifier.classes_]
    query, _ = pictures(2, seed=4)
    assert np.allclose(classifier.predict_proba(query), at_once.predict_proba(query)[:, columns], atol=1e-6)


def test_forgetting() -> None:
    classifier = FewShotClassifier("proto_memory", "photographs").fit(*pictures())
    classifier.forget("nut")
    assert classifier.classes_.tolist() == ["bolt", "washer"]
    alike = FewShotClassifier("proto_memory", "photographs").fit(*pictures(kinds=("bolt", "washer"), seed=0))
    assert classifier.memory_.labels.tolist() == alike.memory_.labels.tolist()
    with pytest.raises(EngramError, match="there is no class 'nutt' to forget; known: bolt, washer"):
        classifier.forget("nutt")
    classifier.forget("bolt")
    with pytest.raises(EngramError, match="only 1 class is remembered and an answer needs 2"):
        classifier.predict(pictures(1)[0])


def test_capacity_forgets_the_oldest_task_of_a_class_first() -> None:
    classifier = FewShotClassifier("proto_memory", "photographs", capacity=3)
    for seed in range(3):
        classifier.partial_fit(*pictures(2, ("bolt", "nut"), seed=seed))
    classifier.partial_fit(*pictures(1, ("bolt",), seed=9))
    assert classifier.memory_.counts.tolist() == [3, 2]
    assert classifier.memory_.tasks.tolist() == [2, 2, 2, 2, 3]


def test_labels_become_plain_and_are_put_in_order() -> None:
    assert as_labels(np.array([2, 1]), 2) == as_labels(torch.tensor([2, 1]), 2) == [2, 1]
    assert type(as_labels(np.array(["a"]), 1)[0]) is str
    assert in_order({3, 1, 2}) == [1, 2, 3] and in_order({"b", 2, "a", 10}) == [10, 2, "a", "b"]


def test_parts_that_do_not_belong_together_are_refused() -> None:
    memory = nothing().add(torch.zeros(3, 2), ["b", "a", "b"], None)
    memory.check()
    assert memory.classes == ("a", "b") and memory.labels.tolist() == [1, 0, 1] and memory.next_task == 1
    for wrong in (replace(memory, classes=("a",)), replace(memory, items=memory.items[:2])):
        with pytest.raises(ValueError, match="its pictures are not of its"):
            wrong.check()
