"""What is not known falls with more pictures; what a picture leaves open does not."""

from __future__ import annotations

import numpy as np
import torch
from drawn import pictures

from engram.classifier import FewShotClassifier
from engram.classifier.engine import Answer
from engram.classifier.uncertainty import split_entropy


def test_draws_that_agree_leave_nothing_unknown_and_sure_ones_nothing_open() -> None:
    open_alike = torch.full((2, 1, 2), 0.5)
    sure_otherwise = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    for draws, epistemic, aleatoric in ((open_alike, 0.0, np.log(2)), (sure_otherwise, np.log(2), 0.0)):
        found = split_entropy(Answer(draws.mean(0).log(), draws, torch.ones(1), None))
        assert np.allclose(np.concatenate(found), [np.log(2), epistemic, aleatoric])


def test_more_pictures_leave_less_that_the_model_does_not_know() -> None:
    query, _ = pictures(2, seed=4)
    few = FewShotClassifier(weights="photographs").fit(*pictures(1))
    before = few.uncertainty(query)
    after = few.partial_fit(*pictures(8, seed=6)).uncertainty(query)
    assert np.allclose(before.total, before.epistemic + before.aleatoric)
    assert (before.epistemic >= 0).all() and before.total.max() <= np.log(3) + 1e-9
    assert after.epistemic.mean() < 0.5 * before.epistemic.mean()
    assert np.array_equal(few.uncertainty(query).total, after.total)  # the same draws every time
