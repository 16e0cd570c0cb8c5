"""Chance: the same probability for every class. The floor of every table."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from engram.types import Episode, History, Method, MethodCard, Prediction


@dataclass(frozen=True)
class ChanceConfig:
    pass


class Chance(Method):
    card = MethodCard(title="Chance", paper="none: a floor", batch_norm="none", trainable=False)
    Config = ChanceConfig

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        """p(c | x) = 1 / n_way"""
        shape = (*episode.query.shape[:2], episode.n_way)
        return Prediction(torch.full(shape, -math.log(episode.n_way), device=episode.query.device))
