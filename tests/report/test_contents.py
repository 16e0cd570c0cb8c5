"""What a report shows: shapes are checked when it is made, and values have one spelling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engram.errors import EngramError
from engram.report.contents import QUICKSTART_COLUMNS, EpisodePicture, QuickstartRow, class_letter, duration


def test_wrong_shapes_are_told_with_both_numbers(picture: EpisodePicture) -> None:
    with pytest.raises(EngramError, match=r"shape \(4, 5\) but 5 queries and 5 class names need \(5, 5\)"):
        replace(picture, probabilities=picture.probabilities[:4])
    with pytest.raises(EngramError, match=r"5 supports \+ 5 queries need \(layers, 10, 10\)"):
        replace(picture, edges=np.zeros((3, 9, 9)))
    with pytest.raises(EngramError, match="5 support and 5 query images but 4 and 5 labels"):
        replace(picture, support_labels=picture.support_labels[:4])


def test_letters_go_on_after_z() -> None:
    assert [class_letter(n) for n in (-1, 0, 25, 26)] == ["?", "A", "Z", "27"]


def test_durations_and_figures_of_a_row() -> None:
    assert [duration(seconds) for seconds in (47.6, 119.4, 125)] == ["48 s", "119 s", "2 min 5 s"]
    row = QuickstartRow("Chance", "5-way 1-shot", 0.2, 0.0042)
    assert [column.value(row) for column in QUICKSTART_COLUMNS] == ["Chance", "20.0 ± 0.4", "", "none"]
