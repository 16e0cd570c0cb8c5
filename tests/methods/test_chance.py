"""The floor of every table."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engram.methods.chance import Chance, ChanceConfig
from engram.types import Episode


@pytest.mark.parametrize("n_way", [2, 5, 20])
def test_every_class_is_as_probable(n_way: int) -> None:
    labels = torch.arange(n_way).repeat(3, 1)
    episode = Episode(torch.randn(3, n_way, 4), labels, torch.randn(3, 7, 4), n_way)
    prediction = Chance(nn.Identity(), ChanceConfig()).predict(episode)
    assert prediction.log_probs.shape == (3, 7, n_way) and prediction.history == ()
    torch.testing.assert_close(prediction.log_probs.exp(), torch.full((3, 7, n_way), 1 / n_way))


def test_there_is_nothing_to_train() -> None:
    assert not list(Chance(nn.Identity(), ChanceConfig()).parameters()) and not Chance.card.trainable
