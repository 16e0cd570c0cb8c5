"""`partial_fit` is the next task of a named stream: the library's own memories answer the same, step by step."""

from __future__ import annotations

import pytest
import torch
from drawn import pictures

from engram.classifier import FewShotClassifier
from engram.classifier.calibration import scores
from engram.types import Episode

STEPS, KINDS = 4, ("bolt", "nut", "washer")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("proto_memory", {}),
        ("knn_memory", {"k": 100}),
        ("content_memory", {"past_query": 0.0}),  # past queries, which are not kept here, are worth 0
        ("cml_bgnn", {"reading": (10.0, 0.5, 0.0, 0.05, 0.3)}),  # the same in its first spelling
    ],
)
def test_remembering_equals_the_methods_own_memory(name: str, settings: dict) -> None:
    classifier = FewShotClassifier(name, "photographs", settings=settings)
    query = pictures(2, KINDS, seed=99)[0]
    histories: tuple[torch.Tensor, ...] = ()
    for step in range(STEPS):
        X, y = pictures(1, KINDS, seed=step)
        classifier.partial_fit(X, y)
        engine, memory = classifier.engine_, classifier.memory_
        support, labels = memory.items[memory.tasks == step], memory.labels[memory.tasks == step]
        asked = engine.see(torch.stack([torch.from_numpy(_resized(x)) for x in query]))
        episode = Episode(support[None], labels[None], asked[None], 3, torch.arange(3)[None])
        with torch.no_grad():
            prediction = engine.method.classify(episode, histories)  # type: ignore[operator]
        histories = prediction.history
        tempered = scores(prediction)[0] / classifier.calibration.temperature
        mine = torch.from_numpy(classifier.predict_proba(query))
        assert torch.allclose(mine, tempered.double().softmax(-1), atol=1e-5), f"step {step}"


def _resized(image: object) -> object:
    from engram.classifier.pictures import as_bytes

    return as_bytes(image, "a query", (3, 84, 84))
