"""CovaMNet: covariances and similarities in plain loops, and what cannot change an answer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from engram.errors import EngramError
from engram.methods.covamnet import CovaMNet, CovaMNetConfig, class_covariances, covariance_similarity
from engram.nn.backbones import Flatten, build_backbone
from engram.types import Answers, Episode, TrainBatch

CHANNELS, SIDE, WAYS, QUERIES = 4, 3, 3, 5
POSITIONS = SIDE * SIDE


class Maps(nn.Module):
    """No encoder: maps as they are."""

    out_shape = (CHANNELS, SIDE, SIDE)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return maps


def build(backbone: nn.Module | None = None, **changes) -> CovaMNet:
    torch.manual_seed(0)
    return CovaMNet(backbone or Maps(), CovaMNetConfig(**changes)).double().eval()


def episode(shots: int = 2, shape: tuple[int, ...] = Maps.out_shape) -> Episode:
    labels = torch.stack([torch.randperm(WAYS * shots) % WAYS for _ in range(2)])
    maps = torch.randn(2, WAYS * shots + QUERIES, *shape, dtype=torch.float64)
    return Episode(maps[:, : WAYS * shots], labels, maps[:, WAYS * shots :], WAYS)


def covariance_in_loops(given: Episode, task: int, c: int) -> np.ndarray:
    """numpy's own covariance of all descriptors of the class, collected one by one."""
    rows = [i for i in range(given.support.shape[1]) if given.support_labels[task, i] == c]
    descriptors = [given.support[task, i, :, y, x].numpy() for i in rows for y in range(SIDE) for x in range(SIDE)]
    return np.cov(np.stack(descriptors, 1))


def test_parameter_counts() -> None:
    method = CovaMNet(build_backbone("conv64_cova", (3, 84, 84), {}), CovaMNetConfig())
    assert method.position_weights.weight.numel() == 441
    assert sum(p.numel() for p in method.parameters()) == 113_273


@torch.no_grad()
@pytest.mark.parametrize("shots", [1, 3])
def test_answers_match_loops(shots: int) -> None:
    method, given = build(), episode(shots)
    found = method.predict(given).log_probs
    weights = method.position_weights.weight[0].numpy()
    for b in range(2):
        for q in range(QUERIES):
            query = given.query[b, q].flatten(1).numpy().copy()
            for channel in range(CHANNELS):
                query[channel] /= np.sqrt(sum(v * v for v in query[channel]))
            logits = np.zeros(WAYS)
            for c in range(WAYS):
                sigma = covariance_in_loops(given, b, c)
                logits[c] = sum(weights[p] * (query[:, p] @ sigma @ query[:, p]) for p in range(POSITIONS))
            np.testing.assert_allclose(found[b, q], logits - np.log(np.exp(logits).sum()), atol=1e-10)


@torch.no_grad()
def test_covariances_are_symmetric_and_not_negative() -> None:
    descriptors, labels = torch.randn(1, 2, 8, 3, dtype=torch.float64), torch.tensor([[0, 1]])
    sigma = class_covariances(descriptors, labels, 2)
    torch.testing.assert_close(sigma, sigma.transpose(2, 3))
    values = torch.linalg.eigvalsh(sigma)
    assert values.min() > -1e-12
    assert ((values > 1e-9).sum(-1) == 2).all()  # rank of 3 descriptors less their mean


@torch.no_grad()
def test_equal_weights_are_a_trace() -> None:
    method, given = build(), episode()
    nn.init.ones_(method.position_weights.weight)
    query = nn.functional.normalize(given.query.flatten(3), dim=-1)
    sigma = class_covariances(given.support.flatten(3), given.support_labels, WAYS)
    logits = torch.stack([(sigma @ (q @ q.mT)[:, None]).diagonal(dim1=2, dim2=3).sum(-1) for q in query.unbind(1)], 1)
    torch.testing.assert_close(method.predict(given).log_probs, logits.log_softmax(-1))
    assert (covariance_similarity(query, sigma) >= 0).all()


@torch.no_grad()
def test_what_does_not_matter() -> None:
    method, given = build(), episode()
    plain = method.predict(given).log_probs
    constant = torch.randn(2, WAYS, CHANNELS, 1, 1, dtype=torch.float64)
    of_support = torch.stack([c[labels] for c, labels in zip(constant, given.support_labels, strict=True)])
    shifted = replace(given, support=given.support + of_support)
    torch.testing.assert_close(method.predict(shifted).log_probs, plain)  # a constant per class and channel
    scale = torch.rand(CHANNELS, 1, 1, dtype=torch.float64) + 0.5
    torch.testing.assert_close(method.predict(replace(given, query=given.query * scale)).log_probs, plain)
    order, names = torch.randperm(WAYS * 2), torch.tensor([2, 0, 1])
    moved = replace(given, support=given.support[:, order], support_labels=names[given.support_labels[:, order]])
    torch.testing.assert_close(method.predict(moved).log_probs[..., names], plain)
    alone = replace(given, query=given.query[:, 2:3])
    torch.testing.assert_close(method.predict(alone).log_probs, plain[:, 2:3])


@torch.no_grad()
def test_a_dead_channel_of_a_query_is_no_error() -> None:
    method, given = build(), episode()
    query = given.query.clone()
    query[:, :, 0] = 0
    assert torch.isfinite(method.predict(replace(given, query=query)).log_probs).all()


def test_from_freeze_after_on_statistics_stay_and_weights_learn() -> None:
    shape = (1, 12, 12)
    method = build(build_backbone("conv64_cova", shape, {"width": 4}), freeze_after=0.5).train()
    given, norm = episode(shape=shape), method.backbone.blocks[0][1]
    answers = Answers(torch.randint(0, WAYS, (2, QUERIES)), torch.zeros(2, WAYS).long())
    for progress, moves in ((0.0, True), (0.5, False), (0.9, False)):
        before = norm.running_mean.clone()
        method.train().loss(TrainBatch((given,), (answers,), progress=progress)).total.backward()
        assert torch.equal(norm.running_mean, before) != moves and method.dropout.training == moves
        assert all(p.grad is not None for p in method.parameters())


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(EngramError, match="at least 2 positions but the backbone gives 6: use conv64_cova"):
        build(Flatten((6,)))
    with pytest.raises(EngramError, match="dropout = 1.0"):
        build(dropout=1.0)
    with pytest.raises(EngramError, match="freeze_after = 2"):
        build(freeze_after=2.0)
