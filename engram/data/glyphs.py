"""The embedded data set: letters of six scripts drawn by the 16 text fonts that matplotlib ships.

Class = character, sample = font under a small random affine map; a task never shows one font twice for one class, so a
query's font is never among its class's supports. Split by script: Latin, Cyrillic and digits train, Greek validates,
Georgian, Armenian and Lao test, so test classes come from unseen alphabets.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engram.data.formats.form import SplitSource

SIZE = 28
CANVAS = 56
VARIANTS = 4
FEWEST_FONTS = 8
SAME_GLYPH, SAME_LETTER = 0.96, 0.85
SCRIPTS = {
    "train": ("LATIN", "CYRILLIC", "DIGIT"),
    "val": ("GREEK",),
    "test": ("GEORGIAN", "ARMENIAN", "LAO"),
}
_STYLES = ("", "-Bold", "-Oblique", "-BoldOblique")
FONTS = (
    *(f"DejaVuSans{style}" for style in _STYLES),
    *(f"DejaVuSansMono{style}" for style in _STYLES),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)


def _font_file(name: str) -> Path:
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"


@cache
def _coverage() -> dict[str, frozenset[int]]:
    """Code points each font draws."""
    from matplotlib.ft2font import FT2Font

    return {name: frozenset(FT2Font(str(_font_file(name))).get_charmap()) for name in FONTS}


def candidate_letters() -> dict[str, str]:
    """Undecorated letters and digits that at least 8 fonts draw: character -> split."""
    counts: dict[int, int] = {}
    for points in _coverage().values():
        for point in points:
            counts[point] = counts.get(point, 0) + 1
    split_of = {script: split for split, scripts in SCRIPTS.items() for script in scripts}
    letters = {}
    # Training scripts first, so that a letter shared by two scripts stays in training and leaves the later split.
    order = {script: i for i, script in enumerate(split_of)}
    for point in sorted(p for p, n in counts.items() if n >= FEWEST_FONTS):
        character = chr(point)
        name = unicodedata.name(character, "")
        script = name.split(" ")[0]
        decorated = " WITH " in name or unicodedata.decomposition(character) != ""
        if script in split_of and not decorated and unicodedata.category(character) in ("Lu", "Ll", "Lo", "Nd"):
            letters[character] = split_of[script]
    scripts = {c: order[unicodedata.name(c).split(" ")[0]] for c in letters}
    return dict(sorted(letters.items(), key=lambda item: (scripts[item[0]], item[0])))


def draw_letter(character: str, font: str) -> np.ndarray:
    """The letter scaled to the middle 40 pixels of a (56, 56) uint8 canvas, ink = 255."""
    face = _face(font)
    left, top, right, bottom = face.getbbox(character)
    width, height = max(1, int(right - left)), max(1, int(bottom - top))
    ink = Image.new("L", (width, height))
    ImageDraw.Draw(ink).text((-left, -top), character, font=face, fill=255)
    scale = 40 / max(width, height)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    canvas = Image.new("L", (CANVAS, CANVAS))
    canvas.paste(ink.resize(size, Image.Resampling.BILINEAR), ((CANVAS - size[0]) // 2, (CANVAS - size[1]) // 2))
    return np.asarray(canvas)


@cache
def _face(font: str) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(_font_file(font)), 64)


@cache
def _drawings() -> dict[str, dict[str, np.ndarray]]:
    """Character -> font -> canvas, for every font that has the character."""
    coverage = _coverage()
    return {c: {f: draw_letter(c, f) for f in FONTS if ord(c) in coverage[f]} for c in candidate_letters()}


@cache
def distinct_letters() -> dict[str, str]:
    """`candidate_letters` without those that look like an earlier one: character -> split.

    Two letters are one class if their bitmaps have a mean cosine above 0.96 over the fonts both have, or above 0.85 for
    the two cases of one letter.
    """
    letters = list(drawings := _drawings())
    cosine, shared = np.zeros((len(letters),) * 2), np.zeros((len(letters),) * 2)
    for font in FONTS:
        present = np.array([font in drawings[c] for c in letters])
        canvases = np.stack([drawings[c].get(font, np.zeros((CANVAS, CANVAS))) for c in letters])
        rows = canvases.reshape(-1, SIZE, 2, SIZE, 2).mean((2, 4)).reshape(len(letters), -1)
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
        cosine += rows @ rows.T
        shared += np.outer(present, present)
    cosine /= np.maximum(shared, 1)
    splits, kept = candidate_letters(), []
    for i, letter in enumerate(letters):
        bounds = np.array([SAME_LETTER if letters[j].casefold() == letter.casefold() else SAME_GLYPH for j in range(i)])
        if not (cosine[i, :i] > bounds).any():
            kept.append(letter)
    return {letter: splits[letter] for letter in kept}


def _variants(canvas: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """VARIANTS small affine maps, each (1, 28, 28): up to 12 degrees, scale 0.85..1.15, shift up to 3 of 56."""
    image = Image.fromarray(canvas)
    for _ in range(VARIANTS):
        angle, scale = math.radians(rng.uniform(-12, 12)), rng.uniform(0.85, 1.15)
        shift_x, shift_y = rng.uniform(-3, 3, 2)
        cosine, sine, middle = math.cos(angle) / scale, math.sin(angle) / scale, CANVAS / 2
        matrix = (
            cosine, sine, middle - cosine * (middle + shift_x) - sine * (middle + shift_y),
            -sine, cosine, middle + sine * (middle + shift_x) - cosine * (middle + shift_y),
        )  # fmt: skip
        moved = image.transform((CANVAS, CANVAS), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
        yield np.asarray(moved.reduce(2))[None]


def glyph_sources() -> dict[str, SplitSource]:
    """The three splits; the images of a class are font after font, VARIANTS of each."""
    letters = distinct_letters()
    sources = {}
    for split in SCRIPTS:
        members = [c for c, s in letters.items() if s == split]

        def read_class(index: int, members: list[str] = members) -> Iterator[np.ndarray]:
            rng = np.random.default_rng(ord(members[index]))  # its own generator: the order of reading does not matter
            for canvas in _drawings()[members[index]].values():
                yield from _variants(canvas, rng)

        counts = tuple(len(_drawings()[c]) * VARIANTS for c in members)
        names = tuple(unicodedata.name(c).lower() for c in members)
        sources[split] = SplitSource(names, counts, read_class, (1, SIZE, SIZE), VARIANTS)
    return sources
