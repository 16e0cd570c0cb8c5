"""wDAE-GNN: Gidaris & Komodakis, Generating Classification Weights with GNN Denoising Autoencoders, CVPR 2019.

Start from the simplest classifier: the mean direction of the supports for a new class, the stored weight for a base
class. Add noise, and let a graph network with one node per class put all weights right again. Caveat: the encoder is
that of stage one and stays frozen; classes that play "new" in a training task leave the base weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError, check_settings, check_within
from engram.nn.heads import (
    BaseStart,
    class_means,
    cosine_logits,
    follow_mean,
    joint_nll,
    random_weights,
    set_aside,
)
from engram.types import Answers, EmbeddingMethod, Episode, History, LossTerms, MethodCard, Prediction, TrainBatch

SHARPNESS = 5.0
"""of the softmax that chooses a node's neighbours"""


@dataclass(frozen=True)
class WdaeConfig:
    n_base_classes: int = 64
    """rows of the base classifier; at least the classes of the training split"""
    neighbours: int = 10
    """classes a node listens to"""
    noise: float = 0.08
    """standard deviation per coordinate, in training"""
    dropout: float = 0.7
    """share of hidden units that is dropped"""
    reconstruction: float = 1.0
    """weight of the squared distance to stage one's weights"""
    step: float = 1.0
    """at test: x + step * (n(out) - x); below 1 trusts the initial weights more, as suits more shots"""
    scale: float = 10.0
    """of all cosines at the start; learnt"""
    base_start: BaseStart = "random"
    """stage_one: base weights are the cosine classifier of the run in [backbone] weights and stay as they are, and
    the scale starts from stage one's where it learnt one; random: they are learnt beside the denoiser"""
    centring: bool = False
    """subtract the mean feature of the base classes, which is followed in training: cosines of an encoder that was
    trained as a linear classifier tell classes apart better so"""
    centring_of: Literal["features", "directions"] = "features"
    """directions: features are brought to length 1 before their mean is taken and subtracted"""


def adjacency(weights: Tensor, neighbours: int) -> tuple[Tensor, Tensor]:
    """a_ij = softmax over j != i of 5 cos(w_i, w_j), the largest kept and made to sum to 1.

    Shapes: (B, V, d) -> shares (B, V, k), who (B, V, k)
    """
    directions = F.normalize(weights, dim=-1)
    cosines = directions @ directions.transpose(-1, -2)
    itself = torch.eye(weights.shape[1], dtype=torch.bool, device=weights.device)
    shares = (SHARPNESS * cosines).masked_fill(itself, float("-inf")).softmax(-1)
    largest, who = shares.topk(min(neighbours, weights.shape[1] - 1), -1)
    return largest / largest.sum(-1, keepdim=True), who


class Messages(nn.Module):
    """m_i = sum_j a_ij lrelu(dropout(BN(P x_i + P x_j))): (B, V, d) -> (B, V, hidden)"""

    def __init__(self, inputs: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.project = nn.Linear(inputs, hidden)
        self.norm, self.dropout = nn.BatchNorm1d(hidden), nn.Dropout(dropout)

    def forward(self, nodes: Tensor, shares: Tensor, who: Tensor) -> Tensor:
        projected = self.project(nodes)
        tasks = torch.arange(len(nodes), device=nodes.device)[:, None, None]
        pairs = projected[:, :, None] + projected[tasks, who]
        pairs = self.norm(pairs.flatten(0, 2)).view_as(pairs)
        return (shares[..., None] * F.leaky_relu(self.dropout(pairs), 0.01)).sum(2)


class Denoiser(nn.Module):
    """Two layers over the graph of classes; w = x + sigmoid(g) o n(r). 16.8 M parameters at d = 640."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        hidden = 3 * width
        self.messages1, self.messages2 = Messages(width, hidden, dropout), Messages(width + hidden, hidden, dropout)
        self.update = nn.Linear(width + hidden, hidden, bias=False)
        self.norm, self.dropout = nn.BatchNorm1d(hidden), nn.Dropout(dropout)
        self.out = nn.Linear(width + 2 * hidden, 2 * width)

    def forward(self, nodes: Tensor, shares: Tensor, who: Tensor) -> Tensor:
        """(B, V, d) -> (B, V, d)"""
        hidden = self.hidden(nodes, shares, who)
        residual, gate = self.out(torch.cat([hidden, self.messages2(hidden, shares, who)], -1)).chunk(2, -1)
        return nodes + torch.sigmoid(gate) * F.normalize(residual, dim=-1)

    def hidden(self, nodes: Tensor, shares: Tensor, who: Tensor) -> Tensor:
        """First layer: (x, n(u)) / sqrt(2), of length 1 where x is: (B, V, d) -> (B, V, 4d)"""
        updated = self.update(torch.cat([nodes, self.messages1(nodes, shares, who)], -1))
        updated = F.leaky_relu(self.dropout(self.norm(updated.flatten(0, 1))), 0.01).view_as(updated)
        return torch.cat([nodes, F.normalize(updated, dim=-1)], -1) / 2**0.5


class Wdae(EmbeddingMethod):
    Config = WdaeConfig
    config: WdaeConfig
    base_rows = "base_weights"
    goes_whole = "class_batch"
    base_mean: Tensor
    batches_seen: Tensor
    card = MethodCard(
        title="wDAE",
        paper="Gidaris & Komodakis, Generating Classification Weights with GNN Denoising Autoencoders, CVPR 2019",
        base_classes=True,
        departures=(
            "Base weights. Paper: stage one's cosine classifier, as it is. Ours: the same with `base_start = "
            '"stage_one"`, else learnt beside the denoiser by stage one\'s loss on `class_batch`, without the '
            "denoiser's gradient (`glyphs_quick`, `mini_5w1s_short`).",
            "Base queries. Reference (ImageNet): 200 for each task. Ours: `class_batch` images shared by the tasks of "
            'a step; an image whose class plays "new" in a task does not count there.',
            "Optimiser. Reference (ImageNet): SGD, Nesterov momentum 0.9, rate 0.01 for 10,000 steps, 0.001 for 5,000. "
            "Ours: the same; `mini_5w1s_short` has plain momentum and a cosine schedule.",
            "Encoder. Paper: WRN-28-10 at 80x80, stride 2 in all three stages. Ours: the recipe's, WRN-28-10 at 84x84 "
            "with strides 1, 2, 2.",
            "Centring. Paper: features as they are, of an encoder trained as a cosine classifier. Ours: the same; in "
            "the `_centred` recipes, whose encoder was trained as a linear one, minus the mean of the base classes "
            "(`_directions`: of features brought to length 1).",
            "Step at test. Reference (ImageNet): 1.0 for 1 and 2 shots, 0.6 for 5. Ours: the same; the authors' value "
            "for miniImageNet is not known.",
            "Test. Paper: 20,000 tasks (unverified). Ours: 10,000, 15 queries per class (`mini_5w1s_short`: 2,000).",
            "`mini_5w1s_short`. Paper: WRN-28-10, 4 tasks per step. Ours: ResNet-12 wide, 16 tasks of 6 queries per "
            "class and 256 base images per step, rate 0.02, 8,000 steps.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: WdaeConfig) -> None:
        super().__init__(backbone, config)
        check_within(config, n_base_classes=2, neighbours=1, noise=0, reconstruction=0)
        check_settings(
            config,
            ("dropout", 0 <= config.dropout < 1, "it lies from 0 to below 1"),
            ("step", 0 <= config.step <= 1, "it lies from 0 to 1"),
            ("scale", config.scale > 0, "it must be above 0"),
        )
        width = prod(backbone.out_shape)  # type: ignore[arg-type]
        self.base_weights = random_weights(config.n_base_classes, width)
        self.base_weights.requires_grad_(config.base_start == "random")
        self.scale = nn.Parameter(torch.tensor(config.scale))
        if config.centring:
            self.register_buffer("base_mean", torch.zeros(width))
            self.register_buffer("batches_seen", torch.zeros(()))
        self.denoiser = Denoiser(width, config.dropout)

    def initial(self, episode: Episode, kept: Tensor | None = None) -> Tensor:
        """Clean weights of length 1: base classes (``kept`` (B, C); None is all), then the task's. -> (B, C + N, d)"""
        directions = F.normalize(self._centred(episode.support.flatten(2)), dim=-1)
        novel = class_means(directions, episode.support_labels, episode.n_way)
        weights = self.base_weights.detach()
        base = weights.expand(len(novel), -1, -1) if kept is None else weights[kept]
        return F.normalize(torch.cat([base, novel], 1), dim=-1)

    def denoise(self, clean: Tensor) -> Tensor:
        """Neighbours from the clean weights; the network sees them with noise, in training. (B, V, d) -> (B, V, d)"""
        shares, who = adjacency(clean.detach(), self.config.neighbours)
        if self.training:
            clean = F.normalize(clean + self.config.noise * torch.randn_like(clean), dim=-1)
        out: Tensor = self.denoiser(clean, shares, who)
        if self.training or self.config.step == 1:
            return out
        return clean + self.config.step * (F.normalize(out, dim=-1) - clean)

    def _centred(self, features: Tensor) -> Tensor:
        return self._measured(features) - self.base_mean if self.config.centring else features

    def _measured(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=-1) if self.config.centring_of == "directions" else features

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """All base classes help to put the weights right; only the columns of the task's own classes compete."""
        weights = self.denoise(self.initial(episode))[:, -episode.n_way :]
        logits = cosine_logits(self._centred(episode.query.flatten(2)), weights, self.scale)
        return Prediction(F.log_softmax(logits, -1))

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Half novel and half base cross-entropy over all columns + reconstruction (+ stage one's, where base weights
        are learnt beside)."""
        if batch.class_batch is None:
            raise EngramError("wdae learns from base-class images too: set class_batch in [data], such as 64")
        images, ids = batch.class_batch
        base = self.backbone(images).flatten(1)
        if self.config.centring and self.training:
            follow_mean(self.base_mean, self.batches_seen, self._measured(base))
        base = self._centred(base)
        steps = zip(self.embed(batch.episodes), batch.answers, strict=True)
        parts = torch.stack([torch.stack(self._step(e, a, base, ids)) for e, a in steps]).mean(0)
        nll, reconstruction, accuracy = parts
        terms = {"nll": nll, "reconstruction": reconstruction, "accuracy": accuracy}
        total = nll + self.config.reconstruction * reconstruction
        if self.config.base_start == "random":
            # The scale learns from the generated weights alone: base classes are told apart so well that it would grow.
            terms["stage_one"] = F.cross_entropy(cosine_logits(base, self.base_weights, self.scale.detach()), ids)
            total = total + terms["stage_one"]
        return LossTerms(total, {name: value.detach() for name, value in terms.items()})

    def _step(self, episode: Episode, answers: Answers, base: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Cross-entropy, distance to stage one's weights (the mean over nodes of |n(out) - n(target)|^2), accuracy."""
        kept, column = set_aside(answers.class_ids, self.config.n_base_classes)
        weights = self.denoise(self.initial(episode, kept))
        target = self.base_weights.detach()[torch.cat([kept, answers.class_ids], 1)]
        gap = F.normalize(weights, dim=-1) - F.normalize(target, dim=-1)
        logits = cosine_logits(self._centred(episode.query.flatten(2)), weights, self.scale)
        novel_nll = joint_nll(logits, kept.shape[1] + answers.query_labels)
        base_nll = joint_nll(cosine_logits(base, weights, self.scale), column[:, ids])
        right = logits[..., kept.shape[1] :].argmax(-1) == answers.query_labels
        return (novel_nll + base_nll) / 2, gap.square().sum(-1).mean(), right.float().mean()
