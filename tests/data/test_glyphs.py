import numpy as np
import pytest

from engram.data.formats.form import SplitSource
from engram.data.glyphs import FEWEST_FONTS, FONTS, SCRIPTS, VARIANTS, distinct_letters, draw_letter, glyph_sources


@pytest.fixture(scope="module")
def sources() -> dict[str, SplitSource]:
    return glyph_sources()


def test_splits_are_disjoint_by_script(sources: dict[str, SplitSource]) -> None:
    for split, source in sources.items():
        scripts = {name.split(" ")[0].upper() for name in source.class_names}
        assert scripts == set(SCRIPTS[split])


def test_there_are_enough_classes_and_fonts(sources: dict[str, SplitSource]) -> None:
    assert 280 <= len(sources["train"].class_names) <= 420
    assert len(sources["val"].class_names) >= 20 and len(sources["test"].class_names) >= 150
    for source in sources.values():
        assert min(source.counts) >= FEWEST_FONTS * VARIANTS and max(source.counts) <= len(FONTS) * VARIANTS


def test_homoglyphs_are_one_class_of_the_training_split() -> None:
    letters = distinct_letters()
    assert "A" in letters and "\u0410" not in letters and "\u0391" not in letters  # the twins go
    assert "o" not in letters or "O" not in letters  # the two cases of one shape
    assert "B" in letters and "b" in letters  # two shapes stay two classes


def test_a_class_is_drawn_the_same_way_twice(sources: dict[str, SplitSource]) -> None:
    first, again = (np.stack(list(sources["val"].read_class(3))) for _ in range(2))
    assert first.shape == (sources["val"].counts[3], 1, 28, 28) and (first == again).all()
    assert (first[0] != first[1]).any()  # variants differ


def test_every_drawing_has_ink() -> None:
    for font in FONTS:
        ink = draw_letter("A", font)
        assert 100 < (ink > 128).sum() < 2000, font
