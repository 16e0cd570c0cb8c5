"""Answers as one self-contained page: pictures, what they look like, which to label next, a map of the memory.

Remembered pictures are shown where they still lie on this computer as they were: a model keeps features, no pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engram.classifier.estimator import FewShotClassifier
from engram.classifier.folders import Answers
from engram.classifier.pictures import as_bytes, side_by_side
from engram.classifier.reading import looked_at, nearest
from engram.classifier.seeing import lying_at
from engram.classifier.suggesting import suggest
from engram.errors import EngramError
from engram.files import check_overwritable
from engram.page.drawing import colour, image_tag
from engram.page.session import THUMBNAIL
from engram.report.page import Section, render_page

TITLE = "Engram: answers"
MOST = 500
"""pictures on a page, and remembered ones on its map"""
ALIKE, NEXT = 4, 12
"""remembered pictures beside each, and pictures worth a label"""
WIDTH, HEIGHT, EDGE = 900, 560, 40


def check_page(path: Path) -> None:
    """Only a page of answers is written over; a folder that is not there is told before any picture is read."""
    check_overwritable(path, ".html", f"<title>{TITLE}")
    if not path.absolute().parent.is_dir():
        raise EngramError(f"{path} cannot be written: there is no folder {path.parent}")


def write_page(path: Path, classifier: FewShotClassifier, answers: Answers) -> None:
    try:
        text = answers_page(classifier, answers)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")  # names of files may be no text
    except OSError as error:
        raise EngramError(f"{path} cannot be written ({error.strerror or error}): name another file") from error


def answers_page(classifier: FewShotClassifier, answers: Answers) -> str:
    assert answers.seen is not None
    seen, files = answers.seen[:MOST], answers.files[:MOST]
    rows = nearest(classifier.engine_, classifier.memory_, seen, ALIKE)
    memory = classifier.memory_
    kept = lying_at(memory.digests[rows.unique()].tolist())
    shown: dict[Path | None, np.ndarray | None] = dict(
        zip([*files, *kept.values()], _thumbnails([*files, *kept.values()]), strict=True)
    )
    blocks = []
    for file, row, alike in zip(files, answers.rows(), rows.tolist(), strict=False):
        like = "".join(
            _captioned(answers.classes[label], shown.get(kept.get(digest)))
            for label, digest in zip(memory.labels[alike].tolist(), memory.digests[alike].tolist(), strict=True)
        )
        facts = f"{row['probability']:.0%} probable, {row['familiar']:.0%} familiar"
        blocks.append(
            f"<tr><td>{_tag(shown[file], str(file), 96)}</td><td><b>{escape(row['class'])}</b><br>{facts}"
            f'<span class="note">{escape(str(file))}</span></td><td>{like}</td></tr>'
        )
    places = suggest(classifier, answers.seen, NEXT).tolist()
    asked = "".join(_captioned(str(answers.files[p]), _thumbnails([answers.files[p]])[0]) for p in places)
    told = f"{ANSWERS} Confidence: {answers.confidence}."
    if len(answers.files) > MOST:
        told += f" The first {MOST} of {len(answers.files)} pictures are shown."
    sections = (
        Section("Answers", told, f"<table><tbody>{''.join(blocks)}</tbody></table>"),
        Section("What to label next", LABEL, asked),
        Section("Map of the memory", MAP, f"<figure>{map_svg(classifier, answers.classes, seen)}</figure>"),
    )
    headline = (
        f"{len(answers.files)} pictures, {len(answers.classes)} classes, {len(memory.labels)} remembered pictures"
    )
    return render_page(TITLE, headline, sections, FOOTER)


ANSWERS = (
    "The class of each picture, how probable it is, and how probable that the picture is of any of the classes at all; "
    "on the right why: the remembered pictures that it looks most like."
)
LABEL = "A label of these pictures would teach most about all the others, the first one most."
FOOTER = "Written by engram predict --html. The pictures are small copies; nothing is loaded from elsewhere."
MAP = (
    "Dots are remembered pictures, rings are those asked about; pictures that look alike lie close together. Two "
    "directions of many: the two in which the remembered pictures differ most."
)


def map_svg(classifier: FewShotClassifier, classes: Sequence[str], seen: Tensor) -> str:
    """The first two principal components of remembered features, with class names at the means."""
    engine, memory = classifier.engine_, classifier.memory_
    chosen = torch.linspace(0, len(memory.labels) - 1, min(MOST, len(memory.labels))).round().long()
    known, labels = looked_at(engine, memory, memory.rows[chosen].float()), memory.labels[chosen]
    centre = known.mean(0)
    axes = torch.linalg.svd(known - centre, full_matrices=False).Vh[:2].T
    dots, rings = ((part - centre) @ axes for part in (known, looked_at(engine, memory, seen)))
    both = torch.nn.functional.pad(torch.cat([dots, rings]), (0, 2 - axes.shape[1]))
    low, high = both.amin(0), both.amax(0)
    room = torch.tensor([WIDTH - 2.0 * EDGE, HEIGHT - 2.0 * EDGE])
    places = EDGE + (both - low) / (high - low).clamp(min=1e-9) * room
    dots, rings = places[: len(known)], places[len(known) :]
    marks = [
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="{colour(c)}" opacity="0.6"><title>{escape(classes[c])}</title>'
        "</circle>"
        for (x, y), c in zip(dots.tolist(), labels.tolist(), strict=True)
    ]
    marks += [
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        for x, y in rings.tolist()
    ]
    for c in labels.unique().tolist():
        x, y = dots[labels == c].mean(0).tolist()
        anchor = "start" if x < WIDTH / 4 else "end" if x > WIDTH * 3 / 4 else "middle"
        marks.append(
            f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-weight="600" fill="currentColor" '
            f'font-size="14">{escape(classes[c])}</text>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="map of {len(known)} remembered pictures and '
        f'{len(rings)} new ones">{"".join(marks)}</svg>'
    )


def _thumbnails(files: Iterable[Path]) -> list[np.ndarray | None]:
    """Small squares from the middle; None for what cannot be read any more."""

    def small(file: Path) -> np.ndarray | None:
        try:
            return as_bytes(file, file.name, THUMBNAIL, 1.0)
        except EngramError:
            return None

    return side_by_side(small, files)


def _tag(pixels: np.ndarray | None, alt: str, size: int) -> str:
    return "" if pixels is None else image_tag(pixels, alt, size)


def _captioned(words: str, pixels: np.ndarray | None) -> str:
    return (
        f'<figure style="display: inline-block; padding: 4px; max-width: 110px">{_tag(pixels, words, 64)}'
        f'<span class="note">{escape(words)}</span></figure>'
    )
