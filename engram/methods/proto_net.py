"""Prototypical Networks (Snell, Swersky & Zemel, NeurIPS 2017).

A class is the mean of its embedded supports; a query goes to the class whose mean is nearest.
Inductive, no parameters besides the encoder. Equal to a linear classifier in embedding space (see `docs/theory.md`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import nn

from engram.errors import check_settings
from engram.nn.heads import class_means, squared_distances
from engram.types import EmbeddingMethod, Episode, History, MethodCard, Prediction


@dataclass(frozen=True)
class ProtoNetConfig:
    temperature: float = 1.0
    """logits are -distance / temperature; the paper has 1"""


class ProtoNet(EmbeddingMethod):
    card = MethodCard(
        title="Prototypical Net",
        paper="Snell, Swersky & Zemel, NeurIPS 2017",
        exportable=True,
        by_class_means=True,
        departures=(
            "Temperature. Paper: 1, the squared distance as it is. Ours: 1, and 64, by which distances are divided, in "
            "`mini_5w1s_temperature_short`, the row of Table 1 here.",
            "Weights kept. Paper: early stopping on the validation loss. Ours: the best validation accuracy.",
            "Length of training. Paper: until that stop, the rate halved every 2,000 tasks. Ours: 40,000 tasks "
            "(100,000 on tieredImageNet) with the same halving; 20,000 in `mini_5w1s_short`, with a cosine schedule in "
            "`mini_5w1s_temperature_short`.",
            "Pixels. Paper: not known. Ours: mean and spread of miniImageNet.",
            "Start of norms. Public code: weights of BatchNorm uniform in (0, 1), PyTorch's default before 1.2. Ours: "
            '1, unless the recipe says `norm_start = "uniform"`.',
            "`mini_5w1s_conv4_short`. Paper: four times 64 channels. Ours: the 64-96-128-256 encoder with dropout, "
            "mirrored crops and a cosine schedule.",
        ),
    )
    Config = ProtoNetConfig

    def __init__(self, backbone: nn.Module, config: ProtoNetConfig) -> None:
        super().__init__(backbone, config)
        check_settings(config, ("temperature", config.temperature > 0, "it must be above 0"))

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """log p(c | x) = log softmax_c ( -|f(x) - mu_c|^2 ),  mu_c = mean of f over the supports of c."""
        support, query = episode.support.flatten(2), episode.query.flatten(2)
        prototypes = class_means(support, episode.support_labels, episode.n_way)
        logits = -squared_distances(query, prototypes) / self.config.temperature
        return Prediction(F.log_softmax(logits, -1))
