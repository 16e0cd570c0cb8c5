"""Stage one: an ordinary classifier of the base classes (Chen et al., ICLR 2019, "Baseline"), then nearest centroid.

Training knows no tasks: cross-entropy on batches of base-class images. At test the classifier is put aside and a query
goes to the class whose mean feature is nearest in angle. Its backbone is what other methods start from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError, check_settings, check_within
from engram.nn.heads import class_means, cosine_logits
from engram.types import EmbeddingMethod, Episode, History, LossTerms, MethodCard, Prediction, TrainBatch

MOMENTUM = 0.01


@dataclass(frozen=True)
class StageOneConfig:
    n_base_classes: int = 64
    """rows of the base classifier; at least the classes of the training split"""
    head: Literal["linear", "cosine"] = "linear"
    """cosine: weights and features of length 1, logits times temperature ("Baseline++")"""
    label_smoothing: float = 0.0
    centring: bool = True
    """at test, subtract the running mean of base-class features"""
    temperature: float = 10.0
    """logits are cosine * temperature"""
    learn_scale: bool = False
    """with head = "cosine": the factor of the base-class logits starts at temperature and is learnt, as LwoF's and
    wDAE's stage one does; answers to tasks keep temperature"""


class StageOne(EmbeddingMethod):
    card = MethodCard(
        title="Stage one",
        paper="Chen et al., A Closer Look at Few-shot Classification, ICLR 2019 (Baseline)",
        base_classes=True,
        by_class_means=True,
        departures=(
            "Test. Paper: a linear classifier fitted to the supports, 100 steps of SGD. Ours: nearest centroid by "
            "cosine of centred features, nothing fitted.",
            "Optimiser. Paper: Adam 1e-3, batches of 16, 400 epochs. Ours: the recipe, SGD 0.1 (0.05 for `conv4`), "
            "momentum 0.9, weight decay 5e-4, a cosine schedule, batches of 256, 15,000 steps (100 epochs of "
            "miniImageNet).",
            "Images. Paper: 224x224 for deep backbones, 84x84 for Conv-4. Ours: 84x84 for all.",
            "Batches. Paper: each image once an epoch. Ours: drawn with replacement.",
            "Cosine head. Public code: scale 2, or 10 above 200 classes. Ours: `temperature`, 10, or learnt from there "
            "(`learn_scale`).",
        ),
    )
    Config = StageOneConfig
    base_rows = "head.weight"
    base_mean: Tensor
    batches_seen: Tensor

    def __init__(self, backbone: nn.Module, config: StageOneConfig) -> None:
        super().__init__(backbone, config)
        check_within(config, n_base_classes=2)
        check_settings(
            config,
            ("label_smoothing", 0 <= config.label_smoothing < 1, "it lies from 0 to below 1"),
            ("temperature", config.temperature > 0, "it must be above 0"),
            ("learn_scale", config.head == "cosine" or not config.learn_scale, "only head = 'cosine' has a scale"),
        )
        width = torch.Size(backbone.out_shape).numel()  # type: ignore[arg-type]
        self.head = nn.Linear(width, config.n_base_classes, bias=config.head == "linear")
        if config.learn_scale:
            self.scale = nn.Parameter(torch.tensor(config.temperature))
        self.register_buffer("base_mean", torch.zeros(width))
        self.register_buffer("batches_seen", torch.zeros(()))
        self._ids_checked = False

    def loss(self, batch: TrainBatch) -> LossTerms:
        """-log p(c | x) over base classes; with smoothing e: (1 - e) of it and e of the mean over all classes."""
        if batch.class_batch is None:
            raise EngramError("stage_one learns from base-class images: set class_batch in [data], such as 256")
        images, ids = batch.class_batch
        self._check_ids(ids)
        features = self.backbone(images).flatten(1)
        self._follow_mean(features.detach())
        log_probs = F.log_softmax(self._base_logits(features), -1)
        nll = -log_probs.gather(1, ids[:, None]).mean()
        smoothing = self.config.label_smoothing
        total = (1 - smoothing) * nll - smoothing * log_probs.mean() if smoothing else nll
        accuracy = (log_probs.argmax(-1) == ids).float().mean()
        return LossTerms(total, {"nll": nll.detach(), "accuracy": accuracy})

    def _check_ids(self, ids: Tensor) -> None:
        """Of the first batch only: looking at the numbers waits for the device."""
        if self._ids_checked:
            return
        largest = int(ids.max())
        if largest >= self.config.n_base_classes:
            raise EngramError(
                f"[method] n_base_classes = {self.config.n_base_classes} but the batch has an image of class "
                f"{largest}: set it to the number of classes of the training split"
            )
        self._ids_checked = True

    def _base_logits(self, features: Tensor) -> Tensor:
        if self.config.head == "linear":
            logits: Tensor = self.head(features)
            return logits
        scale = self.scale if self.config.learn_scale else self.config.temperature
        return cosine_logits(features, self.head.weight, scale)

    @torch.no_grad()
    def _follow_mean(self, features: Tensor) -> None:
        """Plain average over the first 1 / momentum batches, moving average after."""
        if self.training:
            self.batches_seen += 1
            self.base_mean.lerp_(features.mean(0), (1 / self.batches_seen).clamp(min=MOMENTUM))

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """log p(c | x) = log softmax_c ( t cos(z, mu_c) ),  z = (f - base mean) / |f - base mean|,  mu_c = mean z."""
        support, query = (self._centred(part.flatten(2)) for part in (episode.support, episode.query))
        centroids = F.normalize(class_means(support, episode.support_labels, episode.n_way), dim=-1)
        return Prediction(F.log_softmax(self.config.temperature * query @ centroids.transpose(-1, -2), -1))

    def _centred(self, features: Tensor) -> Tensor:
        return F.normalize(features - self.base_mean if self.config.centring else features, dim=-1)
