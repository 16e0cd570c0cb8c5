"""Features of classes that are independent Gaussians: tasks have nothing in common that could be learnt."""

from __future__ import annotations

import numpy as np

from engram.data.store import Store

WIDTH = 16


def gaussian_store(n_classes: int = 300, per_class: int = 12, seed: int = 0) -> Store:
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 0.5, (n_classes, 1, WIDTH))
    features = centres + rng.normal(0, 0.5, (n_classes, per_class, WIDTH))
    return Store.from_arrays(features.astype(np.float32).reshape(-1, WIDTH), [per_class] * n_classes, "gauss", "train")
