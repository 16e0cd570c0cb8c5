"""Nearest centroid on raw pixels: what a task gives without any learning. The second floor of every table."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from engram.nn.heads import class_means, squared_distances
from engram.types import Episode, History, Method, MethodCard, Prediction


@dataclass(frozen=True)
class PixelCentroidConfig:
    pass


class PixelCentroid(Method):
    card = MethodCard(title="Pixel nearest centroid", paper="none: a floor", batch_norm="none", trainable=False)
    Config = PixelCentroidConfig

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        """log p(c | x) = log softmax_c ( -|x - mu_c|^2 / spread ), spread = a tenth of the query's mean
        squared distance, so that confidence does not depend on the image size."""

        def pixels(images: torch.Tensor) -> torch.Tensor:
            flat = images.flatten(2).float()
            return flat / 255 if images.dtype == torch.uint8 else flat

        means = class_means(pixels(episode.support), episode.support_labels, episode.n_way)
        distances = squared_distances(pixels(episode.query), means)
        # The spread is each query's own: a mean over the task would let queries see each other.
        spread = distances.mean(-1, keepdim=True).clamp(min=1e-6) / 10
        return Prediction(F.log_softmax(-distances / spread, -1))
