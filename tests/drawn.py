"""Pictures that are easy to tell apart, and engines small enough for every test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

KINDS = ("bolt", "nut", "washer")


def pictures(per_class: int = 3, kinds: tuple[str, ...] = KINDS, size: int = 40, seed: int = 0) -> tuple[list, list]:
    """X, y: each kind has a colour and stripes of its own, every picture its own noise."""
    rng = np.random.default_rng(seed)
    images, labels = [], []
    for number in range(per_class):
        for kind in kinds:
            look = np.random.default_rng(sum(map(ord, kind)))
            colour, period = look.integers(30, 220, 3), int(look.integers(4, 12))
            stripes = 35 * np.sign(np.sin(2 * np.pi * (np.arange(size) + number) / period))[:, None, None]
            noise = rng.integers(-25, 25, (size, size + 6, 3))
            images.append((colour + stripes + noise).clip(0, 255).astype(np.uint8))
            labels.append(kind)
    return images, labels


def class_folders(root: Path, per_class: int = 3, kinds: tuple[str, ...] = KINDS, seed: int = 0) -> Path:
    images, labels = pictures(per_class, kinds, seed=seed)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        (root / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(root / label / f"{number:02d}.png")
    return root
