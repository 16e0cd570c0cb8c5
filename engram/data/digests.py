"""The digest of a store: its offsets, the names of its classes, its images."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np


def begin_digest(offsets: np.ndarray, class_names: Sequence[str]) -> hashlib._Hash:
    """The digest of a store before its first image."""
    digest = hashlib.sha256(np.ascontiguousarray(offsets, dtype=np.int64).tobytes())
    digest.update("\n".join(class_names).encode())
    return digest


def digest_of(data: np.ndarray, offsets: np.ndarray, class_names: Sequence[str]) -> str:
    digest = begin_digest(offsets, class_names)
    flat = data.reshape(len(data), -1)
    for start in range(0, len(flat), 4096):  # in pieces: a memory map larger than memory must pass too
        digest.update(np.ascontiguousarray(flat[start : start + 4096]).tobytes())
    return digest.hexdigest()
