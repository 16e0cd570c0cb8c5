"""The digest of a store, against one pass over its bytes; in pieces, as images come, it is the same."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from engram.data.digests import begin_digest, digest_of

OFFSETS, NAMES = np.array([0, 2, 5000]), ("oak", "ash")
IMAGES = np.random.default_rng(0).integers(0, 256, (5000, 3), dtype=np.uint8)


def test_it_is_that_of_offsets_names_and_images_one_after_another() -> None:
    expected = hashlib.sha256(OFFSETS.astype("<i8").tobytes() + b"oak\nash" + IMAGES.tobytes()).hexdigest()
    assert digest_of(IMAGES, OFFSETS, NAMES) == digest_of(IMAGES.reshape(5000, 1, 3), OFFSETS.astype(np.int32), NAMES)
    assert digest_of(IMAGES, OFFSETS, NAMES) == expected
    written = begin_digest(OFFSETS, NAMES)
    for image in IMAGES:
        written.update(image.tobytes())
    assert written.hexdigest() == expected


@pytest.mark.parametrize("changed", ["image", "offset", "name"])
def test_whatever_changes_changes_it(changed: str) -> None:
    images, offsets, names = IMAGES.copy(), OFFSETS.copy(), list(NAMES)
    if changed == "image":
        images[4999, 2] ^= 1
    elif changed == "offset":
        offsets[1] += 1
    else:
        names.reverse()
    assert digest_of(images, offsets, names) != digest_of(IMAGES, OFFSETS, NAMES)
