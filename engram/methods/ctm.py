"""CTM: Li et al., Finding Task-Relevant Features for Few-Shot Learning by Category Traversal, CVPR 2019.

Before queries are compared with supports, the whole support set says which features matter for this task. A
concentrator pools each class (what its members share), a projector looks across the classes (what tells them apart) and
emits a soft mask over channels, and the mask multiplies reshaped features of supports and queries. Then pairs of them
are compared: by their distance, or by a small network that scores their relation, as the published figures were.
Caveat: classes lie side by side as the projector's channels, so the number of ways is fixed and renaming classes
changes the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import EngramError, check_settings, check_within
from engram.nn.backbones.contract import map_shape
from engram.nn.heads import check_ways, class_means, squared_distances
from engram.types import EmbeddingMethod, Episode, History, MethodCard, Prediction

RELATION = (128, 128, 64, 64)
"""channels after each bottleneck of the relation head; the first of them halves the positions"""


@dataclass(frozen=True)
class CtmConfig:
    n_way: int = 5
    """Ways of every task it will see."""
    concentrated: int = 64
    """m2: channels of a class after the concentrator."""
    reshaped: int = 64
    """m3: channels of the mask and of the features it multiplies."""
    blocks: Literal["shallow", "resnet"] = "resnet"
    """Of each of the three networks: four narrow bottlenecks, or three wide and two narrow ones."""
    combine: Literal["product", "matmul"] = "product"
    """Mask times features element by element (the paper), or as matrices over positions (the public code)."""
    head: Literal["distance", "relation"] = "distance"
    """What compares a query with a support: minus their Euclidean distance (ProtoNet + CTM), or a learnt score of the
    pair (Relation Net + CTM, whose figures the paper's tables have)."""
    temperature: float = 1.0
    """logits are divided by it; the paper has 1, where a mask of 64 shares leaves distances far below 1"""

    def __post_init__(self) -> None:
        check_within(self, n_way=2)
        sizes = {"concentrated": self.concentrated, "reshaped": self.reshaped}
        check_settings(
            self,
            ("temperature", self.temperature > 0, "it must be above 0"),
            *((name, size >= 4 and size % 4 == 0, "a multiple of 4 is needed") for name, size in sizes.items()),
        )


class Bottleneck(nn.Module):
    """conv1x1 - conv3x3 - conv1x1 with 1/4 of the outputs inside, each with BatchNorm; the input is added, through a
    1x1 where the shapes differ; ReLU. Shapes: (n, inputs, h, w) -> (n, outputs, h / stride, w / stride), rounded up"""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        inner = outputs // 4
        self.body = nn.Sequential(
            *(nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True)),
            *(nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True)),
            *(nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        matched = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity() if inputs == outputs and stride == 1 else matched

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def bottlenecks(inputs: int, outputs: int, blocks: str) -> nn.Sequential:
    """Concentrator, projector and reshaper alike: a stack of bottlenecks, Xavier weights, from inputs to outputs."""
    sizes = [outputs] * 4 if blocks == "shallow" else [2 * outputs] * 3 + [outputs] * 2
    stack = nn.Sequential(*(Bottleneck(i, o) for i, o in pairwise([inputs, *sizes])))
    for part in stack.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.xavier_uniform_(part.weight)
    return stack


class Relation(nn.Module):
    """Score of two maps laid upon each other: four bottlenecks, then linear - BatchNorm - ReLU - linear.

    Shapes: (B, S, C, h, w), (B, Q, C, h, w) -> (B, S, Q)
    """

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        blocks = [Bottleneck(2 * channels, RELATION[0], stride=2), *(Bottleneck(i, o) for i, o in pairwise(RELATION))]
        flat = RELATION[-1] * ((height + 1) // 2) * ((width + 1) // 2)
        hidden = [nn.Linear(flat, flat // 2), nn.BatchNorm1d(flat // 2), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*blocks, nn.Flatten(), *hidden, nn.Linear(flat // 2, 1))
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.xavier_uniform_(part.weight)
            elif isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, 0.0, 0.01)
                nn.init.zeros_(part.bias)

    def forward(self, support: Tensor, query: Tensor) -> Tensor:
        shape = (len(support), support.shape[1], query.shape[1])
        pairs = [part.expand(*shape, -1, -1, -1) for part in (support[:, :, None], query[:, None])]
        scores: Tensor = self.layers(torch.cat(pairs, 3).flatten(0, 2))
        return scores.view(shape)


class Ctm(EmbeddingMethod):
    Config = CtmConfig
    config: CtmConfig
    card = MethodCard(
        title="CTM",
        paper="Li et al., Finding Task-Relevant Features for Few-Shot Learning by Category Traversal, CVPR 2019",
        class_equivariant=False,
        fixed_ways=True,
        departures=(
            "Mask and features. Paper: element by element. Public code: a matrix product over positions. Ours: the "
            'paper\'s, `combine = "matmul"` for the other.',
            "Metric. Paper: Matching, Proto or Relation, the last in its tables. Ours: the last with `head = "
            '"relation"`, built as in the public code, else the Euclidean distance; for every support, summed over the '
            "shots of a class.",
            "Shots. Public code: side by side as channels. Ours: the mean of a class, as in the paper, so shots may "
            "differ at test.",
            "Sizes m2 and m3 of the ResNet-18 row. Paper: not published. Ours: 64 and 64.",
            "Selection. Public code: on the test split. Ours: on validation classes; `mini_5w1s_reference` has the "
            "public code's matrix product and choice, is marked in every table, and the audit calls the choice a leak.",
            "BatchNorm. Public code: momentum 1 in the shallow encoder, supports and queries apart, one task per step. "
            "Ours: 0.1 and all images of the batch in one call.",
            "Deep backbone. Public code: a sigmoid after the stem's BatchNorm. Ours: ReLU.",
            "Training. Paper: 600,000 tasks, one per step, the rate falling every 200,000 (unverified). Ours: as many "
            "tasks, four per step, halved every 50,000 steps.",
            "Shallow encoder. Public code: a demo of 85,200 tasks of 20 ways. Ours: as many of 5 ways, for the ways "
            "are tied.",
            "Temperature. Paper: 1. Ours: the recipe, 1/16 in `mini_5w1s_frozen`.",
            "`mini_5w1s_relation_augmented`. Paper, augmented row: crops of 84 from 104 pixels, mirrored, colours "
            "changed by up to a tenth. Ours: crops of 70 to 100 % of the area, mirrored, colours by up to 40 %; 20,000 "
            "steps at 3e-4, the head alone in the first 2,000.",
            "`mini_5w1s_short`. Paper: ResNet-18. Ours: `resnet12_wide` from stage one, 3,000 steps of 8 tasks with 6 "
            "queries per class, augmented, rate 3e-4 with a cosine; in `mini_5w1s_frozen` the encoder is frozen, 6,000 "
            "steps at 1e-3.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: CtmConfig) -> None:
        super().__init__(backbone, config)
        channels, height, width = map_shape(backbone, "ctm")
        if config.combine == "matmul" and height != width:
            raise EngramError(f"[method] combine = 'matmul' needs square maps but the backbone's are {height}x{width}")
        self.concentrator = bottlenecks(channels, config.concentrated, config.blocks)
        self.projector = bottlenecks(config.n_way * config.concentrated, config.reshaped, config.blocks)
        self.reshaper = bottlenecks(channels, config.reshaped, config.blocks)
        if config.head == "relation":
            self.relation = Relation(config.reshaped, height, width)

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """logit_c = sum over the K shots of c of r(I(s), I(q)) / temperature,  I(x) = reshaper(f(x)) * mask,
        r = -|I(s) - I(q)| or the relation head's score.

        Written as K times the mean, with K = S / n_way, so that classes with fewer shots have no advantage.
        """
        check_ways(episode.n_way, self.config.n_way, "ctm")
        n_support = episode.support.shape[1]
        mask = self.mask(episode.support, episode.support_labels)
        images = torch.cat([episode.support, episode.query], 1)
        reshaped = self.reshaper(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        improved = reshaped * mask[:, None] if self.config.combine == "product" else reshaped @ mask[:, None]
        support, query = improved.split([n_support, images.shape[1] - n_support], 1)
        if self.config.head == "relation":
            scores = self.relation(support, query)
        else:
            scores = -distances(support.flatten(2), query.flatten(2))
        to_classes = class_means(scores, episode.support_labels, episode.n_way)
        sharpness = n_support / episode.n_way / self.config.temperature
        return Prediction(F.log_softmax(sharpness * to_classes.transpose(1, 2), -1))

    def mask(self, support: Tensor, labels: Tensor) -> Tensor:
        """softmax over channels of projector([o_1 ; ... ; o_N]),  o_c = mean over the shots of c of concentrator(f(s)).

        Shapes: (B, S, m1, h, w), (B, S) -> (B, m3, h, w)
        """
        concentrated = self.concentrator(support.flatten(0, 1)).unflatten(0, support.shape[:2])
        classes = class_means(concentrated.flatten(2), labels, self.config.n_way)
        side_by_side = classes.view(len(support), -1, *support.shape[-2:])
        mask: Tensor = self.projector(side_by_side).softmax(1)
        return mask


def distances(support: Tensor, query: Tensor) -> Tensor:
    """|s - q|, not squared, after moving the supports' mean to 0, which keeps the squares small and their difference
    exact. (B, S, d), (B, Q, d) -> (B, S, Q)"""
    centre = support.mean(1, keepdim=True)
    squares = squared_distances(support - centre, query - centre)
    return (squares.clamp_min(0) + 1e-12).sqrt()
