"""Matching Networks: Vinyals et al., Matching Networks for One Shot Learning, NeurIPS 2016.

A query is answered by a vote of the labelled supports, weighted by a softmax over cosine similarities. With
full-context embeddings (`fce`) supports are read one after the other by a bidirectional LSTM and every query attends
over them before it is compared. Caveats: read in a row, supports matter by their order; and cosines lie within [-1, 1],
so that without a temperature no answer is surer than e / (e + N - 1) on features that are not negative.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engram.errors import check_settings, check_within
from engram.nn.heads import one_hot
from engram.types import EmbeddingMethod, Episode, History, MethodCard, Prediction


@dataclass(frozen=True)
class MatchingNetConfig:
    fce: bool = False
    """full-context embeddings: an LSTM over the supports, attention of the queries over them"""
    n_reads: int = 3
    """attention steps of a query, with fce"""
    vote: Literal["softmax", "sum"] = "softmax"
    """softmax over supports, then added by class; or cosines added by class, then softmax (the same for one shot)"""
    temperature: float = 1.0
    """similarities are cosine / temperature; the paper has 1"""


class _FullContext(nn.Module):
    """Embeddings that know the whole support set; `width` in, `width` out."""

    def __init__(self, width: int, n_reads: int) -> None:
        super().__init__()
        self.n_reads = n_reads
        self.support_lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.query_cell = nn.LSTMCell(2 * width, width)

    def supports(self, features: Tensor) -> Tensor:
        """g_i = g'_i + forward state i + backward state i: (B, S, d) -> (B, S, d)"""
        forward, backward = self.support_lstm(features)[0].chunk(2, -1)
        return features + forward + backward

    def queries(self, features: Tensor, supports: Tensor) -> Tensor:
        """T times: r = sum_i softmax_i(h . g_i) g_i;  (h~, c) = LSTM([f'; r], (h, c));  h = h~ + f'. From h = c = 0.

        Shapes: (B, Q, d), (B, S, d) -> (B, Q, d)
        """
        flat = features.flatten(0, 1)
        hidden, cell = torch.zeros_like(flat), torch.zeros_like(flat)
        for _ in range(self.n_reads):
            attention = hidden.view_as(features) @ supports.transpose(1, 2)
            read = attention.softmax(-1) @ supports
            state, cell = self.query_cell(torch.cat([flat, read.flatten(0, 1)], -1), (hidden, cell))
            hidden = state + flat
        return hidden.view_as(features)


class MatchingNet(EmbeddingMethod):
    Config = MatchingNetConfig
    config: MatchingNetConfig
    card = MethodCard(
        title="Matching Net",
        paper="Vinyals et al., Matching Networks for One Shot Learning, NeurIPS 2016",
        departures=(
            "Backward LSTM of `fce`. Public code: its state at step i is added to support i, which belongs to the "
            "mirror image. Ours: the state that has just read support i.",
            "Vote of several shots. Paper: softmax over supports, added by class. Public code: cosines added by class, "
            "then softmax. Ours: `vote`, the paper's by default; `mini_5w5s_vote_sum` has the code's.",
            "Gradient clipping with `fce`. Public code: the attention LSTM alone, norm 0.25. Ours: encoder, support "
            "LSTM and attention LSTM, each to norm 0.25.",
            "Encoder calls in training. Public code: supports and queries of one task apart. Ours: one call for all "
            "images of the batch.",
            "BatchNorm. Public code: epsilon 1e-3. Ours: 1e-5; dropout of 0.1 after every block is the same.",
            "Pixels. Public code: not known. Ours: mean and spread of miniImageNet.",
            "`mini_5w1s_short`. Public code: 75,000 steps of one task, Adam 1e-4, no augmentation. Ours: 16 tasks "
            "per step, 5e-4 (1e-3 in `mini_5w1s_no_fce_quick`) with a cosine that ends with the time box, shifted "
            "and mirrored images.",
        ),
    )

    def __init__(self, backbone: nn.Module, config: MatchingNetConfig) -> None:
        super().__init__(backbone, config)
        check_within(config, n_reads=1)
        check_settings(config, ("temperature", config.temperature > 0, "it must be above 0"))
        if config.fce:
            self.context = _FullContext(prod(backbone.out_shape), config.n_reads)  # type: ignore[arg-type]
            self.card = replace(type(self).card, support_order_invariant=False)

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        support, query = episode.support.flatten(2), episode.query.flatten(2)
        if self.config.fce:
            support = self.context.supports(support)
            query = self.context.queries(query, support)
        cosine = F.normalize(query, dim=-1) @ F.normalize(support, dim=-1).transpose(1, 2)
        members = one_hot(episode.support_labels, episode.n_way).to(cosine.dtype)
        return Prediction(self._vote(cosine / self.config.temperature, members))

    def _vote(self, similarity: Tensor, members: Tensor) -> Tensor:
        """log P(c) = log of the sum, over the supports of c, of softmax_i(similarity_i).

        As the softmax's denominator is the same for all classes, it may be taken over classes at the end. Supports
        without a label have no vote. Shapes: (B, Q, S), (B, S, N) -> (B, Q, N)
        """
        if self.config.vote == "sum":
            return F.log_softmax(similarity @ members, -1)
        return F.log_softmax((similarity[..., None] + members.log()[:, None]).logsumexp(2), -1)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Encoder and the two LSTMs apart, so that each can be clipped by its own norm."""
        parts = [self.backbone, *([self.context.support_lstm, self.context.query_cell] if self.config.fce else [])]
        return [{"params": [p for p in part.parameters() if p.requires_grad]} for part in parts]
