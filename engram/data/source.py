"""One split as a format reads it, before it becomes a store. Without torch, so that datasets are looked for fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SplitSource:
    """The classes, how many images each has, and a way to read those of one class."""

    class_names: tuple[str, ...]
    counts: tuple[int, ...]
    read_class: Callable[[int], Iterator[np.ndarray]]
    """Class index -> its images in order, each uint8 (channels, height, width) of the store's shape."""
    image_shape: tuple[int, ...]
    group_size: int = 1
    """Consecutive images that are variants of one original (a font, transformed); a task meets one of them at most."""
    dtype: str = "uint8"
