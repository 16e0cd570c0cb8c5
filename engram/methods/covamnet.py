"""CovaMNet: Li et al., Distribution Consistency Based Covariance Metric Networks for Few-Shot Learning, AAAI 2019.

A class is the covariance of the local descriptors (positions of the feature map) of all its supports. A query is scored
position by position by how well it lies along that covariance, and learned weights add the positions up. Inductive.
Caveat: the reference freezes BatchNorm and dropout after the first of its 30 epochs (`freeze_after`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError, check_settings
from engram.nn.backbones.contract import as_map_shape
from engram.nn.heads import class_means, class_sums, one_hot
from engram.types import EmbeddingMethod, Episode, History, LossTerms, MethodCard, Prediction, TrainBatch


@dataclass(frozen=True)
class CovaMNetConfig:
    dropout: float = 0.5
    """of the similarities of single positions"""
    freeze_after: float = 1.0
    """share of the schedule from which BatchNorm statistics stay as they are and nothing is dropped; 1 = never"""


class CovaMNet(EmbeddingMethod):
    Config = CovaMNetConfig
    config: CovaMNetConfig
    card = MethodCard(
        title="CovaMNet",
        paper="Li et al., Distribution Consistency Based Covariance Metric Networks for Few-Shot Learning, AAAI 2019",
        departures=(
            "Encoder calls in training. Reference: all queries in one call, the supports of every class in one of "
            "their own. Ours: one call for all images of the batch.",
            "Dead channels of a query. Reference: divided by a norm of 0, which gives no number. Ours: 0.",
            "LeakyReLU on the similarities. Reference: yes. Ours: none, for a covariance gives nothing below 0.",
            "Length of training. Reference: 400,000 steps by default, 300,000 in the released log. Ours: 300,000.",
            "`mini_5w1s_short`. Reference: one task per step, 1e-3 times 0.05 every 100,000, frozen after 10,000, no "
            "augmentation. Ours: 16 tasks per step, 2e-3 with a cosine that ends with the time box, never frozen, "
            "shifted and mirrored images.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: CovaMNetConfig) -> None:
        super().__init__(backbone, config)
        check_settings(
            config,
            ("dropout", 0 <= config.dropout < 1, "it lies from 0 to below 1"),
            ("freeze_after", 0 <= config.freeze_after <= 1, "a share lies from 0 to 1"),
        )
        out_shape: tuple[int, ...] = backbone.out_shape  # type: ignore[assignment]
        _, height, width = as_map_shape(out_shape)
        if height * width < 2:
            raise EngramError(
                f"covamnet needs a map of at least 2 positions but the backbone gives {'x'.join(map(str, out_shape))}: "
                f"use conv64_cova on images, or a method for vectors"
            )
        self.dropout = nn.Dropout(config.dropout)
        self.position_weights = nn.Linear(height * width, 1, bias=False)

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """logit_c = sum over positions p of w_p x_p' Sigma_c x_p, every channel of x of length 1 over the positions."""
        support, query = episode.support.flatten(3), episode.query.flatten(3)
        covariances = class_covariances(support, episode.support_labels, episode.n_way)
        similarities = covariance_similarity(F.normalize(query, dim=-1), covariances)
        return Prediction(F.log_softmax(self.position_weights(self.dropout(similarities))[..., 0], -1))

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Cross-entropy; from `freeze_after` on in evaluation mode, where weights and affine terms still learn."""
        freeze_after = self.config.freeze_after
        if self.training and freeze_after < 1 and batch.progress >= freeze_after:
            self.eval()
        return super().loss(batch)


def class_covariances(descriptors: Tensor, labels: Tensor, n_way: int) -> Tensor:
    """Sigma_c = X X' / (n_c - 1) over the n_c descriptors of all supports of class c, less their mean.

    Shapes: (B, S, C, P), (B, S) -> (B, n_way, C, C)
    """
    members = one_hot(labels, n_way).to(descriptors.dtype)
    means = members @ class_means(descriptors.mean(-1), labels, n_way)
    centred = descriptors - means[..., None]
    products = (centred @ centred.transpose(-1, -2)).flatten(2)
    counts = members.sum(1) * descriptors.shape[-1]
    sums = class_sums(products, labels, n_way) / (counts - 1)[..., None]
    return sums.unflatten(2, (descriptors.shape[2], -1))


def covariance_similarity(queries: Tensor, covariances: Tensor) -> Tensor:
    """z_qcp = x_qp' Sigma_c x_qp without any product of positions: (B, Q, C, P), (B, N, C, C) -> (B, Q, N, P)"""
    along = torch.einsum("bncd,bqdp->bqncp", covariances, queries)
    return (along * queries[:, :, None]).sum(3)
