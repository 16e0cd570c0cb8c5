"""Matching Net: the vote and the full-context embeddings in plain loops, and what each of them depends on."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from engram.errors import EngramError
from engram.methods.matching_net import MatchingNet, MatchingNetConfig
from engram.nn.backbones import Flatten, build_backbone
from engram.types import Episode

WIDTH, WAYS, QUERIES = 5, 3, 4


def build(**changes) -> MatchingNet:
    torch.manual_seed(0)
    method = MatchingNet(Flatten((WIDTH,)), MatchingNetConfig(**changes)).double()
    for parameter in method.parameters():
        nn.init.normal_(parameter)
    return method.eval()


def episode(shots: int = 2) -> Episode:
    labels = torch.stack([torch.randperm(WAYS * shots) % WAYS for _ in range(2)])
    features = torch.randn(2, WAYS * shots + QUERIES, WIDTH, dtype=torch.float64)
    return Episode(features[:, : WAYS * shots], labels, features[:, WAYS * shots :], WAYS)


def votes_in_loops(query: np.ndarray, support: np.ndarray, labels: list[int], rule: str) -> np.ndarray:
    votes = np.zeros((len(query), WAYS))
    for q, f in enumerate(query):
        cosine = [f @ g / np.linalg.norm(f) / np.linalg.norm(g) for g in support]
        for i, c in enumerate(labels):
            votes[q, c] += cosine[i] if rule == "sum" else np.exp(cosine[i]) / np.exp(cosine).sum()
    return votes if rule == "softmax" else np.exp(votes) / np.exp(votes).sum(1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm_step(x, h, c, w_ih, w_hh, b_ih, b_hh) -> tuple[np.ndarray, np.ndarray]:
    i, f, g, o = np.split(w_ih @ x + b_ih + w_hh @ h + b_hh, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def context_in_loops(method: MatchingNet, support: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Supports and queries of one task, vector by vector."""
    lstm, cell = method.context.support_lstm, method.context.query_cell
    known = support.copy()
    for direction, order in (("", range(len(support))), ("_reverse", reversed(range(len(support))))):
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        weights = [getattr(lstm, name + direction).detach().numpy() for name in names]
        h, c = np.zeros(WIDTH), np.zeros(WIDTH)
        for i in order:
            h, c = lstm_step(support[i], h, c, *weights)
            known[i] += h
    weights = [p.detach().numpy() for p in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)]
    seen = []
    for f in query:
        h, c = np.zeros(WIDTH), np.zeros(WIDTH)
        for _ in range(method.config.n_reads):
            attention = np.exp([h @ g for g in known])
            read = sum(a * g for a, g in zip(attention / attention.sum(), known, strict=True))
            state, c = lstm_step(np.concatenate([f, read]), h, c, *weights)
            h = state + f
        seen.append(h)
    return known, np.stack(seen)


@torch.no_grad()
@pytest.mark.parametrize("fce", [False, True])
@pytest.mark.parametrize("vote", ["softmax", "sum"])
def test_answers_match_loops(fce: bool, vote: str) -> None:
    method, given = build(fce=fce, vote=vote), episode()
    found = method.predict(given).log_probs.exp()
    torch.testing.assert_close(found.sum(-1), torch.ones(2, QUERIES, dtype=torch.float64))
    for b in range(2):
        support, query = given.support[b].numpy(), given.query[b].numpy()
        if fce:
            support, query = context_in_loops(method, support, query)
        expected = votes_in_loops(query, support, given.support_labels[b].tolist(), vote)
        np.testing.assert_allclose(found[b], expected, atol=1e-10)


def test_parameter_counts() -> None:
    with torch.device("meta"):
        context = MatchingNet(Flatten((1600,)), MatchingNetConfig(fce=True)).context
        small = MatchingNet(Flatten((64,)), MatchingNetConfig(fce=True)).context
    assert sum(p.numel() for p in context.support_lstm.parameters()) == 40_985_600
    assert sum(p.numel() for p in context.query_cell.parameters()) == 30_732_800
    assert sum(p.numel() for p in small.parameters()) == 116_224
    plain = MatchingNet(build_backbone("conv64", (3, 84, 84), {"dropout": 0.1}), MatchingNetConfig())
    assert sum(p.numel() for p in plain.parameters()) == 113_088
    assert sum(isinstance(part, nn.Dropout) for part in plain.modules()) == 4


@torch.no_grad()
def test_with_one_shot_both_votes_are_the_same() -> None:
    given = episode(shots=1)
    first, second = (build(vote=vote).predict(given).log_probs for vote in ("softmax", "sum"))
    torch.testing.assert_close(first, second)
    several = episode(shots=2)
    first, second = (build(vote=vote).predict(several).log_probs for vote in ("softmax", "sum"))
    assert (first - second).abs().max() > 1e-3


@torch.no_grad()
def test_without_context_the_scale_of_features_does_not_matter() -> None:
    given = episode()
    scaled = replace(given, support=7 * given.support, query=7 * given.query)
    torch.testing.assert_close(build().predict(scaled).log_probs, build().predict(given).log_probs)


@torch.no_grad()
@pytest.mark.parametrize("fce", [False, True])
def test_the_order_of_supports_matters_with_context_alone(fce: bool) -> None:
    method, given = build(fce=fce), episode()
    order, names = torch.tensor([3, 0, 5, 1, 4, 2]), torch.tensor([2, 0, 1])
    moved = replace(given, support=given.support[:, order], support_labels=given.support_labels[:, order])
    plain = method.predict(given).log_probs
    gap = (method.predict(moved).log_probs - plain).abs().max()
    assert (gap > 1e-3) == fce == (not method.card.support_order_invariant)
    renamed = replace(given, support_labels=names[given.support_labels])
    torch.testing.assert_close(method.predict(renamed).log_probs[..., names], plain)


@torch.no_grad()
@pytest.mark.parametrize("fce", [False, True])
def test_a_query_does_not_know_the_others(fce: bool) -> None:
    method, given = build(fce=fce), episode()
    alone = replace(given, query=given.query[:, 1:2])
    torch.testing.assert_close(method.predict(alone).log_probs, method.predict(given).log_probs[:, 1:2])


@torch.no_grad()
def test_cosines_bound_what_can_be_said() -> None:
    """Features that are not negative: the surest answer of five ways is e / (e + 4); a temperature lifts it."""
    five = torch.eye(5, dtype=torch.float64)[None]
    task = Episode(five, torch.arange(5)[None], five, 5)
    surest = build().predict(task).log_probs.exp().max().item()
    assert surest == pytest.approx(np.e / (np.e + 4)) and -np.log(surest) > 0.9
    assert build(temperature=0.1).predict(task).log_probs.exp().max() > 0.99


@torch.no_grad()
def test_unlabelled_supports_have_no_vote() -> None:
    given = episode()
    labels = given.support_labels.clone()
    labels[0, labels[0] == 0] = torch.tensor([0, -1])
    kept = labels[0] >= 0
    fewer = Episode(given.support[:1, kept], labels[:1, kept], given.query[:1], WAYS)
    found = build().predict(replace(given, support_labels=labels)).log_probs[:1]
    torch.testing.assert_close(found, build().predict(fewer).log_probs)


@pytest.mark.parametrize(
    ("changes", "told"), [({"n_reads": 0}, "n_reads = 0"), ({"temperature": 0.0}, "temperature = 0.0")]
)
def test_settings_that_cannot_be_are_told(changes: dict[str, float], told: str) -> None:
    with pytest.raises(EngramError, match=told):
        build(**changes)
