"""Pictures of one colour each, as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def coloured(folder: Path, name: str, colour: tuple[int, int, int], count: int = 2, seed: int = 0) -> list[Path]:
    rng = np.random.default_rng(seed + sum(colour))
    files = []
    for number in range(count):
        pixels = (np.array(colour) + rng.integers(-30, 30, (50, 40, 3))).clip(0, 255).astype(np.uint8)
        files.append(folder / f"{name}{seed}{number}.png")
        Image.fromarray(pixels).save(files[-1])
    return files
