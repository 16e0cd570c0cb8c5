"""Stage one: an ordinary classifier of the base classes (Chen et al., ICLR 2019, "Baseline"), then nearest centroid.

Training knows no tasks: cross-entropy on batches of base-class images. At test the classifier is put aside and a query
goes to the class whose mean feature is nearest in angle. Its backbone is what other methods start from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError, check_settings, check_within
from engram.nn.heads import class_means, cosine_logits, follow_mean, one_hot
from engram.nn.view import fit_view
from engram.types import EmbeddingMethod, Episode, History, LossTerms, MethodCard, Prediction, TrainBatch


@dataclass(frozen=True)
class StageOneConfig:
    n_base_classes: int = 64
    """rows of the base classifier; at least the classes of the training split; 0 = as many as it has"""
    head: Literal["linear", "cosine"] = "linear"
    """cosine: weights and features of length 1, logits times temperature ("Baseline++")"""
    label_smoothing: float = 0.0
    centring: bool = True
    """at test, subtract the running mean of base-class features"""
    centring_of: Literal["features", "directions"] = "features"
    """directions: features are brought to length 1 before their mean is taken and subtracted"""
    view: bool = False
    """at test, look at features as the classifier of own pictures does (`engram.nn.view`), in place of centring"""
    temperature: float = 10.0
    """logits are cosine * temperature"""
    learn_scale: bool = False
    """with head = "cosine": the factor of the base-class logits starts at temperature and is learnt, as LwoF's and
    wDAE's stage one does; answers to tasks keep temperature"""
    turned: float = 0.0
    """share of the images, the first of the batch, that are turned by 0, 90, 180 or 270 degrees, drawn evenly; a linear
    head on the features learns to say which"""
    turning_weight: float = 1.0
    """of that head's cross-entropy beside the one of the base classes"""
    mixup: float = 0.0
    """alpha: images not turned become l x_i + (1 - l) x_p(i), l from Beta(alpha, alpha), and their classes the same
    mixture; 0 = none"""
    mixup_of: Literal["pixels", "features"] = "pixels"
    """features: what the encoder makes of the images is mixed, not they themselves ("manifold mixup", last layer)"""
    distillation: float = 0.5
    """weight of what the teacher says, where [train] names one; the rest is that of the labels"""
    distillation_temperature: float = 4.0
    """both answers are softened by it"""


@dataclass(frozen=True)
class Mixing:
    """Which row goes with which, and by how much. Rows are drawn at random, so the one before is as good as any."""

    kept: int
    """the first rows, which stay as they are"""
    shares: Tensor
    """(n - kept,) l of each of the others"""

    def __call__(self, rows: Tensor) -> Tensor:
        """x_i -> l_i x_i + (1 - l_i) x_(i - 1) of the rows that are mixed; uint8 is rounded: (n, ...) -> (n, ...)."""
        mixed, shares = rows[self.kept :], self.shares.view(-1, *(1,) * (rows.ndim - 1))
        mixed = shares * mixed + (1 - shares) * mixed.roll(1, 0)
        return torch.cat([rows[: self.kept], mixed if rows.is_floating_point() else mixed.round().to(rows.dtype)])


Mix = Callable[[Tensor], Tensor]


def _as_it_is(rows: Tensor) -> Tensor:
    return rows


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
    goes_whole = "sequences"
    teachable = True
    base_mean: Tensor
    batches_seen: Tensor

    def __init__(self, backbone: nn.Module, config: StageOneConfig) -> None:
        super().__init__(backbone, config)
        check_within(config, turned=(0, 1), turning_weight=0, mixup=0, distillation=(0, 1))
        check_settings(
            config,
            ("n_base_classes", config.n_base_classes == 0 or config.n_base_classes >= 2, "at least 2 is needed"),
            ("label_smoothing", 0 <= config.label_smoothing < 1, "it lies from 0 to below 1"),
            ("temperature", config.temperature > 0, "it must be above 0"),
            ("mixup", not (config.mixup and config.turned == 1), "turned = 1 leaves no image to mix"),
            ("mixup", config.mixup < inf, "it must be finite"),
            ("distillation_temperature", 0 < config.distillation_temperature < inf, "it must be above 0 and finite"),
            ("learn_scale", config.head == "cosine" or not config.learn_scale, "only head = 'cosine' has a scale"),
        )
        width = torch.Size(backbone.out_shape).numel()  # type: ignore[arg-type]
        self.head = nn.Linear(width, config.n_base_classes, bias=config.head == "linear")
        if config.learn_scale:
            self.scale = nn.Parameter(torch.tensor(config.temperature))
        if config.turned:
            self.turn_head = nn.Linear(width, 4)
        self.register_buffer("base_mean", torch.zeros(width))
        self.register_buffer("batches_seen", torch.zeros(()))
        self._ids_checked = False

    def loss(self, batch: TrainBatch) -> LossTerms:
        """-log p(c | x) over base classes; with smoothing e: (1 - e) of it and e of the mean over all classes.

        With ``turned``: + turning_weight * -log p(turn | x), over the turned images alone. With ``mixup``, over the
        others: -l log p(c_i | x) - (1 - l) log p(c_p(i) | x); accuracy goes by the class with the larger share.
        With a teacher: (1 - distillation) of the base classes' part and distillation of `_distilled`.
        """
        if batch.class_batch is None:
            raise EngramError("stage_one learns from base-class images: set class_batch in [data], such as 256")
        images, ids = batch.class_batch
        self._check_ids(ids)
        images, turns = self._turn(images)
        mix_pixels, mix_features, mix_targets = self._draw_mixing(images, len(turns))
        images, targets = mix_pixels(images), mix_targets(one_hot(ids, self.config.n_base_classes))
        features = self.backbone(images).flatten(1)
        self._follow_mean(features.detach(), len(turns))
        base_logits = self._base_logits(mix_features(features))
        log_probs = F.log_softmax(base_logits, -1)
        nll = -(targets * log_probs).sum(-1).mean()
        smoothing = self.config.label_smoothing
        total = (1 - smoothing) * nll - smoothing * log_probs.mean() if smoothing else nll
        terms = {"nll": nll.detach(), "accuracy": (log_probs.argmax(-1) == targets.argmax(-1)).float().mean()}
        for teacher in self.teachers:
            with torch.no_grad():
                taught = teacher._base_logits(mix_features(teacher.backbone(images).flatten(1)))
            distilled = self._distilled(base_logits, taught)
            total = (1 - self.config.distillation) * total + self.config.distillation * distilled
            terms["distilled"] = distilled.detach()
        if self.config.turned:
            logits = self.turn_head(features[: len(turns)])
            turning = F.cross_entropy(logits, turns)
            total = total + self.config.turning_weight * turning
            terms |= {"turning": turning.detach(), "turning_accuracy": (logits.argmax(-1) == turns).float().mean()}
        return LossTerms(total, terms)

    def _distilled(self, logits: Tensor, taught: Tensor) -> Tensor:
        """t^2 KL( softmax(teacher's logits / t) || softmax(logits / t) ), mean over images: (n, classes) twice -> ()"""
        t = self.config.distillation_temperature
        ours, theirs = F.log_softmax(logits / t, -1), F.log_softmax(taught / t, -1)
        return t**2 * F.kl_div(ours, theirs, reduction="batchmean", log_target=True)

    def _turn(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The images, the first of them turned, and by how many quarters each of those: (n, C, H, W), (turned,).

        Images are drawn at random, so the first are as good as any, and their number is known without looking.
        """
        if not self.config.turned:
            return images, images.new_empty(0, dtype=torch.int64)
        if images.ndim != 4 or images.shape[2] != images.shape[3]:
            shape = "x".join(map(str, images.shape[1:]))
            raise EngramError(
                f"[method] turned = {self.config.turned} but images of {shape} do not fit themselves when turned by 90 "
                f"degrees: use square images or turned = 0"
            )
        count = max(1, round(self.config.turned * len(images)))
        turns = torch.randint(4, (count,), device=images.device)
        views = torch.stack([torch.rot90(images[:count], quarters, (2, 3)) for quarters in range(4)])
        return torch.cat([views[turns, torch.arange(count, device=images.device)], images[count:]]), turns

    def _draw_mixing(self, images: Tensor, turned: int) -> tuple[Mix, Mix, Mix]:
        """What is done to pixels, to features and to targets."""
        if not self.config.mixup:
            return _as_it_is, _as_it_is, _as_it_is
        alpha = torch.full((len(images) - turned,), self.config.mixup, device=images.device)
        # Its own checks would look at numbers on the device.
        mixing = Mixing(turned, torch.distributions.Beta(alpha, alpha, validate_args=False).sample())
        return (mixing, _as_it_is, mixing) if self.config.mixup_of == "pixels" else (_as_it_is, mixing, mixing)

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

    def _follow_mean(self, features: Tensor, turned: int) -> None:
        """Of upright images where some are."""
        if self.training:
            upright = features[turned:] if turned < len(features) else features
            follow_mean(self.base_mean, self.batches_seen, self._measured(upright))

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """log p(c | x) = log softmax_c ( t cos(z, mu_c) ),  z = (f - base mean) / |f - base mean|,  mu_c = mean z.

        With centring_of = "directions" f / |f| stands for f, with view z is the `View` of f.
        """
        support, query = self._compared(episode.support.flatten(2), episode)
        centroids = F.normalize(class_means(support, episode.support_labels, episode.n_way), dim=-1)
        return Prediction(F.log_softmax(self.config.temperature * query @ centroids.transpose(-1, -2), -1))

    def _compared(self, support: Tensor, episode: Episode) -> list[Tensor]:
        parts = support, episode.query.flatten(2)
        if not self.config.view:
            return [self._centred(part) for part in parts]
        tasks = zip(support, episode.support_labels, strict=True)
        looks = [fit_view(known, labels, episode.n_way) for known, labels in tasks]
        return [torch.stack([look(seen) for look, seen in zip(looks, part, strict=True)]) for part in parts]

    def _centred(self, features: Tensor) -> Tensor:
        return F.normalize(self._measured(features) - self.base_mean if self.config.centring else features, dim=-1)

    def _measured(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=-1) if self.config.centring_of == "directions" else features
