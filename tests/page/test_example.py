"""The example set: letters in class folders, and the same letters in other fonts to ask about."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from engram.page.example import LETTERS, QUERY_FONTS, SUPPORT_FONTS, example_files, write_example


def test_fonts_that_are_asked_about_are_not_shown_before(tmp_path: Path) -> None:
    support, questions = write_example(tmp_path)
    assert list(support) == list(LETTERS) and not set(SUPPORT_FONTS) & set(QUERY_FONTS)
    assert all(file.parent == tmp_path / "support" / name for name, files in support.items() for file in files)
    assert {len(files) for files in support.values()} == {len(SUPPORT_FONTS)}
    assert len(set(questions)) == len(LETTERS) * len(QUERY_FONTS)


def test_letters_are_dark_on_light_and_differ(tmp_path: Path) -> None:
    support, questions = write_example(tmp_path)
    files = [*questions, *(file for shown in support.values() for file in shown)]
    pictures = [np.asarray(Image.open(file)) for file in files]
    assert all(p.shape == (112, 112) and p[0, 0] > 250 and p.min() < 60 and p.mean() > 150 for p in pictures)
    assert len({p.tobytes() for p in pictures}) == len(pictures)


def test_it_is_written_once_for_all_visitors() -> None:
    assert example_files() is example_files() and all(file.exists() for file in example_files()[1])
