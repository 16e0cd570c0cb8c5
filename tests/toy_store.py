"""Small stores for tests, made in memory."""

from __future__ import annotations

import numpy as np

from engram.data.store import Store


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
