"""Stores small enough for every test; nothing is read from the user's own cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from engram.data.store import Store

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))


def make_store(
    n_classes: int = 12,
    per_class: int = 20,
    shape: tuple[int, ...] = (1, 28, 28),
    seed: int = 0,
    noise: float = 40.0,
    dataset: str = "toy",
    split: str = "train",
) -> Store:
    """Each class is one random pattern, its images are the pattern plus noise: learnable in a few steps."""
    rng = np.random.default_rng(seed)
    patterns = rng.uniform(0, 255, (n_classes, 1, *shape))
    images = patterns + rng.normal(0, noise, (n_classes, per_class, *shape))
    pixels = images.clip(0, 255).astype(np.uint8).reshape(-1, *shape)
    return Store.from_arrays(pixels, [per_class] * n_classes, dataset, split)


@pytest.fixture(scope="session")
def toy_store() -> Store:
    return make_store()
