"""The weights in the box: small, described, complete, and found by the names recipes use."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import pictures

from engram.classifier import FewShotClassifier
from engram.classifier.box import WEIGHTS, box, fitted_at
from engram.models.checkpoint import load

MEBIBYTE = 2**20


@pytest.mark.parametrize("kind", list(box()))
def test_every_kind_answers_and_is_small(kind: str) -> None:
    entry = box()[kind]
    folders = [folder for folder in (entry.encoder, *entry.heads.values()) if folder]  # imagenet's come in a package
    size = sum(f.stat().st_size for folder in folders for f in (WEIGHTS / folder).rglob("*") if f.is_file())
    assert size < 6 * MEBIBYTE
    assert (WEIGHTS / f"{kind}.md").is_file(), "a model card"
    for folder in folders:
        checkpoint = load(WEIGHTS / folder)
        assert all(t.element_size() <= 2 for t in checkpoint.tensors("weights").values() if t.is_floating_point())
    X, y = pictures(3)
    classifier = FewShotClassifier(weights=kind).fit(X, y)
    assert classifier.engine_.recipe.method == entry.engine
    assert classifier.uncertainty(X).total.shape == (9,)
    assert ((classifier.familiarity(X) > 0) & (classifier.familiarity(X) < 1)).all()


def test_numbers_between_those_that_were_fitted() -> None:
    fitted = {"1": [2.0, 0.0], "4": [1.0, 8.0]}
    assert fitted_at(fitted, 2) == pytest.approx([1.5, 4.0])
    assert fitted_at(fitted, 0.5) == [2.0, 0.0] and fitted_at(fitted, 100) == [1.0, 8.0]
    of_classes = {"2x1": [2.0], "2x4": [1.0], "8x1": [4.0], "8x4": [3.0]}
    assert fitted_at(of_classes, 2, 4) == pytest.approx([2.5]) and fitted_at(of_classes, 1, 100) == [4.0]
    of_queries = {"2x1x1": [4.0], "2x1x9": [2.0], "8x1x1": [8.0], "8x1x9": [6.0]}
    assert fitted_at(of_queries, 1, 4, 3) == pytest.approx([5.0]) and fitted_at(of_queries, 3, 2, 0) == [4.0]


def test_drawings_may_be_dark_on_light_or_light_on_dark() -> None:
    if "glyphs" not in box():
        pytest.skip("no glyphs in this box")
    rng = np.random.default_rng(0)
    drawings = (rng.random((6, 28, 28)) > 0.8).astype(np.uint8) * 255
    drawings[:, :3] = drawings[:, -3:] = drawings[:, :, :3] = drawings[:, :, -3:] = 0
    classifier = FewShotClassifier(weights="glyphs").fit(drawings, list("abcabc"))
    assert np.allclose(classifier.predict_proba(drawings), classifier.predict_proba(255 - drawings), atol=1e-6)
