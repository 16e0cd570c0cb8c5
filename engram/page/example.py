"""The example set: letters that no encoder of the box was trained on, drawn from the fonts that are at hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from PIL import Image

from engram.data.glyphs import draw_letter
from engram.page import uploads

LETTERS = {"ani": "\u10d0", "ban": "\u10d1", "gan": "\u10d2", "don": "\u10d3"}
"""the first letters of the Georgian alphabet, which is in the test split"""
SUPPORT_FONTS = ("DejaVuSans", "DejaVuSansMono-Bold", "DejaVuSerif")
QUERY_FONTS = ("DejaVuSans-Bold", "DejaVuSerif-Bold")


def write_example(folder: Path) -> tuple[dict[str, list[Path]], list[Path]]:
    """``support/<letter>/`` with three pictures of each letter and ``new/`` with two more, dark on light as on paper.

    Returns the pictures of each class, and those to ask about.
    """
    support = {name: [_write(folder / "support" / name, name, font) for font in SUPPORT_FONTS] for name in LETTERS}
    return support, [_write(folder / "new", name, font) for name in LETTERS for font in QUERY_FONTS]


@cache
def example_files() -> tuple[dict[str, list[Path]], list[Path]]:
    """The example set among the uploads, as long as this process runs."""
    return write_example(uploads.folder() / "example")


def _write(folder: Path, name: str, font: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{font}.png"
    letter = Image.fromarray(255 - draw_letter(LETTERS[name], font))
    letter.resize((112, 112), Image.Resampling.BILINEAR).save(path)
    return path
