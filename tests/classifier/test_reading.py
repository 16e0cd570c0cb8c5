"""A memory too large to be looked at whole answers nearly as if it were."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from engram.classifier import FewShotClassifier, index, memory, reading
from engram.classifier.engine import Engine
from engram.classifier.index import Rows
from engram.classifier.memory import Memory, nothing
from engram.methods import METHODS
from engram.recipes import load_recipe

WIDTH, CLASSES = 32, 12
SETTINGS = {"knn_memory": {"distance": "cosine", "temperature": 0.1}, "content_memory": {"transductive": False}}


class Seen(nn.Module):
    out_shape = (WIDTH,)


def engine(name: str) -> Engine:
    torch.manual_seed(0)
    kind = METHODS[name]
    method = kind(Seen(), kind.Config(**SETTINGS.get(name, {}))).eval()
    return Engine(method, load_recipe("proto_net/mini_5w1s"), (3, 8, 8), Seen())


def simulated(count: int, seed: int) -> tuple[Tensor, list[str]]:
    points = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(7))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return points[labels] + 0.9 * torch.randn(count, WIDTH, generator=generator), [f"{n:02d}" for n in labels.tolist()]


@pytest.fixture
def large() -> Memory:
    items, labels = simulated(800, 1)
    found = nothing().add(items, labels, None)
    return Memory(found.classes, Rows((items,)), found.labels, found.tasks)


@pytest.mark.parametrize("name", ["proto_net", "proto_memory", "content_memory", "knn_memory", "propagation_memory"])
def test_the_answer_is_nearly_that_of_the_whole_memory(name: str, large: Memory) -> None:
    """Class means for methods that say they go by them, and the nearest entries for the others."""
    asked, query = engine(name), simulated(8 if name == "propagation_memory" else 60, 2)[0]
    whole = asked.answer(large.items[:], large.labels, query, CLASSES).log_probs.exp()
    read = reading.answer(asked, large, query, 0).log_probs.exp()
    assert torch.allclose(read.sum(1), torch.ones(len(query)), atol=1e-5)
    assert (read.argmax(1) == whole.argmax(1)).float().mean() >= 0.95
    assert asked.method.card.by_class_means == (name in ("proto_net", "proto_memory", "content_memory"))
    if name in ("proto_net", "knn_memory"):
        assert torch.allclose(read, whole, atol=5e-3)


def test_few_candidates_of_many_classes(large: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CANDIDATES", 3)
    log_probs = reading.answer(engine("proto_net"), large, simulated(5, 2)[0], 0).log_probs
    least = log_probs.amin(1, keepdim=True)
    assert ((log_probs == least).sum(1) >= CLASSES - 3).all() and (least < -20).all()
    assert torch.allclose(log_probs.exp().sum(1), torch.ones(5), atol=1e-5)


def test_where_all_the_nearest_are_of_one_class_another_stands_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    items = torch.cat([torch.ones(300, WIDTH), -torch.ones(300, WIDTH)]) + 0.01 * torch.randn(600, WIDTH)
    found = nothing().add(items, ["a"] * 300 + ["b"] * 300, None)
    far = Memory(found.classes, Rows((items,)), found.labels, found.tasks)
    probabilities = reading.answer(engine("knn_memory"), far, torch.ones(1, WIDTH), 0).log_probs.exp()
    assert probabilities.argmax() == 0 and probabilities.shape == (1, 2)


def test_a_classifier_goes_on_beyond_what_can_be_looked_at_whole(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    from drawn import pictures

    monkeypatch.setattr(memory, "MOST_EXACT", 20)
    classifier = FewShotClassifier(weights="photographs").fit(*pictures(6))
    query, truth = pictures(3, seed=4)
    before = classifier.predict_proba(query)
    classifier.save(tmp_path / "model")
    classifier.partial_fit(*pictures(6, seed=1)).save(tmp_path / "model")
    assert isinstance(classifier.memory_.items, Rows) and classifier.memory_.counts.tolist() == [12, 12, 12]
    loaded = FewShotClassifier.load(tmp_path / "model")
    assert loaded.memory_.indexed is not None and loaded.memory_.items.dtype == torch.float16
    assert loaded.score(query, truth) > 0.9 and abs(loaded.predict_proba(query) - before).max() < 0.3
    assert loaded.uncertainty(query).total.shape == (9,) and loaded.predict_proba([]).shape == (0, 3)
    loaded.forget("nut").partial_fit(*pictures(1, seed=8)).save(tmp_path / "model")
    again = FewShotClassifier.load(tmp_path / "model")
    assert again.classes_.tolist() == ["bolt", "washer", "nut"] and again.memory_.counts.tolist() == [13, 13, 1]
    assert index.TAIL > 20
