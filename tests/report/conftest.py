"""Made-up material for reports: no model, no data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engram.report.episode import EpisodePicture


def _picture(n_way: int = 5, n_shot: int = 1, n_query: int = 1, graph: bool = True, seed: int = 0) -> EpisodePicture:
    """An episode in shuffled order whose probabilities favour the true class."""
    rng = np.random.default_rng(seed)
    supports = rng.permutation(np.repeat(np.arange(n_way), n_shot))
    queries = rng.permutation(np.repeat(np.arange(n_way), n_query))
    labels = np.concatenate([supports, queries])
    logits = rng.normal(size=(len(queries), n_way)) + 3 * np.eye(n_way)[queries]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    edges = np.repeat((labels[:, None] == labels[None]).astype(float)[None], 3, 0) if graph else None
    return EpisodePicture(
        images_support=rng.integers(0, 256, (len(supports), 14, 14), dtype=np.uint8),
        support_labels=supports,
        images_query=rng.integers(0, 256, (len(queries), 14, 14), dtype=np.uint8),
        query_labels=queries,
        edges=edges,
        probabilities=probabilities,
        class_names=[f"class <{c}>" for c in range(n_way)],
        title=f"{n_way}-way {n_shot}-shot",
    )


@pytest.fixture(scope="session")
def make_picture() -> Callable[..., EpisodePicture]:
    return _picture


@pytest.fixture
def picture() -> EpisodePicture:
    return _picture()
