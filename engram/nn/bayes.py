"""Amortised Gaussian weights of an edge's logit, W s + b, and the expectation of its probability.

A posterior maps hidden states (N, V, d), their differences (N, V, V, d) and scores s (N, V, V) to a `LogitPosterior`.
Its fields broadcast to (N, V, V): one W and b per task are (N, 1, 1), one per edge are (N, V, V).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from engram.nn.graph import PointwiseNet
from engram.nn.pairs import on_pairs

FIELDS = ("weight_mean", "weight_log_variance", "bias_mean", "bias_log_variance")
"""order of the groups in `EdgePosterior`"""


class LogitPosterior(NamedTuple):
    """q(W) = N(weight_mean, weight_variance) and q(b) likewise, on top of a score s (N, V, V): equation 9."""

    score: Tensor
    weight_mean: Tensor
    weight_variance: Tensor
    bias_mean: Tensor
    bias_variance: Tensor

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean w s + b and variance s^2 var_w + var_b of the logit. -> (N, V, V) twice"""
        mean = self.weight_mean * self.score + self.bias_mean
        return mean, self.score.square() * self.weight_variance + self.bias_variance

    def sample(self, count: int) -> Tensor:
        """Equation 10: probabilities sigmoid(W s + b) of ``count`` draws of W and b. -> (count, N, V, V)

        Per edge the logit itself is drawn (local reparameterisation): the same distribution with half the noise. Per
        task all edges share one W and one b, so these are drawn.
        """
        if self.weight_mean.shape == self.score.shape:
            mean, variance = self.moments()
            return torch.sigmoid(_normal(count, mean, variance))
        weight = _normal(count, self.weight_mean, self.weight_variance)
        bias = _normal(count, self.bias_mean, self.bias_variance)
        return torch.sigmoid(weight * self.score + bias)


def _normal(count: int, mean: Tensor, variance: Tensor) -> Tensor:
    noise = torch.randn(count, *mean.shape, device=mean.device, dtype=mean.dtype)
    return mean + variance.sqrt() * noise


class Quadrature(nn.Module):
    """E[sigmoid(x)], x ~ N(mean, variance), by Gauss-Hermite nodes: the same answer every time, as no noise is drawn.

        E[f(x)] = sum_m w_m f(mean + sqrt(variance) x_m)

    Shapes: mean, variance (...) -> (...)
    """

    nodes: Tensor
    weights: Tensor

    def __init__(self, count: int = 24) -> None:
        super().__init__()
        nodes, weights = np.polynomial.hermite_e.hermegauss(count)
        self.register_buffer("nodes", torch.tensor(nodes, dtype=torch.float32), persistent=False)
        self.register_buffer("weights", torch.tensor(weights / weights.sum(), dtype=torch.float32), persistent=False)

    def forward(self, mean: Tensor, variance: Tensor) -> Tensor:
        return torch.sigmoid(mean[..., None] + variance.sqrt()[..., None] * self.nodes) @ self.weights


class TaskPosterior(nn.Module):
    """Equation 9 as printed: one W_t and b_t per task, from the SET of its hidden states.

        mu_t = f_mu({h_i}),  log delta_t^2 = f_delta({h_i}),  f({h_i}) = R mean_i(LeakyReLU(P h_i + p)) + r

    The mean over nodes makes it blind to their order and to their number. Shapes: (N, V, d) -> fields (N, 1, 1)
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean = _SetNet(width, (1.0, -1.0))
        self.log_variance = _SetNet(width, (-4.0, -4.0))

    def forward(self, hidden: Tensor, pairs: Tensor, score: Tensor) -> LogitPosterior:
        weight_mean, bias_mean = self.mean(hidden)
        weight_variance, bias_variance = (value.exp() for value in self.log_variance(hidden))
        return LogitPosterior(score, weight_mean, weight_variance, bias_mean, bias_variance)


class _SetNet(nn.Module):
    """Two numbers from a set: per-node layer, mean, linear map that begins at ``start``. (N, V, d) -> 2 x (N, 1, 1)"""

    def __init__(self, width: int, start: tuple[float, float]) -> None:
        super().__init__()
        self.per_node = nn.Sequential(nn.Linear(width, width), nn.LeakyReLU())
        self.out = nn.Linear(width, 2)
        with torch.no_grad():
            self.out.weight.mul_(0.1)
            self.out.bias.copy_(torch.tensor(start))

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        first, second = self.out(self.per_node(hidden).mean(-2))[:, None, :, None].unbind(-2)
        return first, second


class EdgePosterior(nn.Module):
    """The public model's form: one W and b per EDGE, each mean and log-variance from its own net on |h_i - h_j|.

    Each of the four nets is d -> d -> 1 with BatchNorm, LeakyReLU and dropout; as nothing in them mixes channels but
    their first product, they are one net of four groups. Shapes: (N, V, V, d) -> fields (N, V, V)
    """

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.nets = PointwiseNet([width, len(FIELDS) * width], outputs=len(FIELDS), dropout=dropout, grouped=True)

    def forward(self, hidden: Tensor, pairs: Tensor, score: Tensor) -> LogitPosterior:
        weight_mean, weight_log_variance, bias_mean, bias_log_variance = on_pairs(self.nets, pairs).unbind(-1)
        return LogitPosterior(score, weight_mean, weight_log_variance.exp(), bias_mean, bias_log_variance.exp())


def bayes_loss(class_samples: Tensor, labels: Tensor) -> Tensor:
    """L_B, equation 8: -log (1/M sum_m p(y~ | x~, psi_m)), mean over queries; M samples of the CLASS probability.

    Shapes: (M, ..., Q, n_way), labels (..., Q) -> scalar
    """
    chosen = class_samples.gather(-1, labels[None, ..., None].expand(len(class_samples), *labels.shape, 1))
    return -chosen.mean(0).log().mean()
