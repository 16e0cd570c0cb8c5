"""Which pictures to label next: what teaches about many, nothing twice, and what the engine does not know."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from drawn import KINDS, pictures

from engram.classifier import FewShotClassifier, suggesting
from engram.classifier.suggesting import spread
from engram.errors import EngramError


def around(centre: int, count: int, width: float = 0.3) -> torch.Tensor:
    """Unit vectors near one axis of eight."""
    noise = torch.randn(count, 8, generator=torch.Generator().manual_seed(centre))
    return F.normalize(F.one_hot(torch.tensor(centre), 8) + width * noise, dim=-1)


def test_first_from_every_crowd_that_is_not_known() -> None:
    pool = torch.cat([around(0, 9), around(1, 6), around(2, 3), around(3, 1)])
    chosen = spread(pool, around(0, 4), torch.ones(len(pool)), 2).tolist()
    assert 9 <= chosen[0] < 15 and 15 <= chosen[1] < 18, "the larger crowd first, what is known not at all"


def test_a_picture_is_worth_what_is_not_known_around_it() -> None:
    pool = torch.cat([around(1, 6), around(2, 6)])
    worth = torch.tensor([0.1] * 6 + [1.0] * 6)
    assert int(spread(pool, around(0, 2), worth, 1)) >= 6 > int(spread(pool, around(0, 2), worth.flip(0), 1))


def test_the_same_picture_is_asked_about_once_as_long_as_there_are_others() -> None:
    pool = torch.cat([around(1, 1).expand(50, -1), around(2, 3)])
    chosen = spread(pool, around(0, 2), torch.ones(len(pool)), 53).tolist()
    assert chosen[0] < 50 and set(chosen[1:4]) == {50, 51, 52} and sorted(chosen) == list(range(53))


def test_gain_is_what_a_label_takes_from_the_variance_of_all() -> None:
    pool, known, worth = around(1, 5), around(0, 2), torch.rand(5, generator=torch.Generator().manual_seed(0))
    kernel = suggesting._kernel

    def variance(labelled: torch.Tensor) -> torch.Tensor:
        told = kernel(labelled, pool)
        inner = kernel(labelled, labelled) + suggesting.NOISE * torch.eye(len(labelled))
        return (kernel(pool, pool) - told.T @ torch.linalg.solve(inner, told)).diagonal() @ worth

    left = torch.stack([variance(torch.cat([known, pool[i : i + 1]])) for i in range(5)])
    assert int(spread(pool, known, worth, 1)) == int(left.argmin())


@pytest.mark.parametrize("engine", ["content_memory", "proto_memory"])
def test_a_classifier_suggests_places(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = pictures(4)
    known = [i for i, label in enumerate(y) if label != KINDS[0]]
    classifier = FewShotClassifier(engine, "photographs").fit([X[i] for i in known[:4]], [y[i] for i in known[:4]])
    places = classifier.suggest(X, 5)
    assert places.dtype == np.int64 and len(set(places.tolist())) == 5
    assert places[0] not in known[:4], "a picture it has already teaches nothing"
    assert np.array_equal(classifier.suggest(X, 2), places[:2])
    monkeypatch.setattr(suggesting, "MOST", 3)
    assert sorted(classifier.suggest(X, 99).tolist()) == list(range(len(X)))
    assert len(classifier.suggest([], 3)) == 0
    with pytest.raises(EngramError, match="count = 0 but at least 1 picture must be suggested"):
        classifier.suggest(X, 0)
