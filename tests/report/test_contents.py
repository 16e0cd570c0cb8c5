"""What a report shows: shapes are checked when it is made, and values have one spelling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engram.errors import EngramError
from engram.report.contents import EpisodePicture, class_letter


def test_wrong_shapes_are_told_with_both_numbers(picture: EpisodePicture) -> None:
    with pytest.raises(EngramError, match=r"shape \(4, 5\) but 5 queries and 5 class names need \(5, 5\)"):
        replace(picture, probabilities=picture.probabilities[:4])
    with pytest.raises(EngramError, match=r"5 supports \+ 5 queries need \(layers, 10, 10\)"):
        replace(picture, edges=np.zeros((3, 9, 9)))
    with pytest.raises(EngramError, match="5 support and 5 query images but 4 and 5 labels"):
        replace(picture, support_labels=picture.support_labels[:4])


def test_letters_go_on_after_z() -> None:
    assert [class_letter(n) for n in (-1, 0, 25, 26)] == ["?", "A", "Z", "27"]
