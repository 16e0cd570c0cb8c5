"""LEO: written-out gradients against autograd, the regularisers against numpy, and what the steps reduce to."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from engram.errors import EngramError
from engram.methods.leo import Leo, LeoConfig, kl_estimate, orthogonality, spread
from engram.nn.backbones import Flatten
from engram.nn.heads import class_means, one_hot
from engram.types import Answers, Episode, TrainBatch

FEATURES, WAYS, CODE = 10, 3, 4
LABELS = torch.tensor([[0, 1, 1, 2, 0, 1]])


def build(**settings) -> Leo:
    torch.manual_seed(0)
    method = Leo(Flatten((FEATURES,)), LeoConfig(**{"code_width": CODE, "weight_rate": 0.3, **settings})).double()
    for parameter in (method.encoder.weight, method.decoder.weight):
        parameter.data *= 3
    return method.eval()


def supports(n_tasks: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    return F.normalize(torch.randn(n_tasks, 6, FEATURES).double(), dim=-1), LABELS.expand(n_tasks, 6)


def episode(n_tasks: int = 2) -> Episode:
    return Episode(*supports(n_tasks), torch.randn(n_tasks, 4, FEATURES).double(), WAYS)


def support_loss(weights: torch.Tensor, support: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum of cross-entropies over the supports of one task, each class's logit the average over its copies."""
    by_class = torch.stack([weights[labels == c].mean(0) for c in range(WAYS)])
    return F.cross_entropy(support @ by_class.T, labels, reduction="sum")


def learn_slowly(method: Leo, support: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """One task in evaluation mode by autograd, differentiable through all steps. -> (n_way, d)"""
    codes = method.encoder(support)
    related = torch.stack([torch.stack([method.relation(torch.cat([a, b])) for b in codes]).mean(0) for a in codes])
    means = torch.stack([related[labels == c].mean(0)[:CODE] for c in range(WAYS)])
    z = means[labels]
    for _ in range(method.config.code_steps):
        loss = support_loss((z @ method.decoder.weight.T)[:, :FEATURES], support, labels)
        z = z - method.code_rate * torch.autograd.grad(loss, z, create_graph=True)[0]
    w = (z @ method.decoder.weight.T)[:, :FEATURES]
    for _ in range(method.config.weight_steps):
        w = w - method.weight_rate * torch.autograd.grad(support_loss(w, support, labels), w, create_graph=True)[0]
    return torch.stack([w[labels == c].mean(0) for c in range(WAYS)])


def test_parameter_count():
    assert sum(p.numel() for p in Leo(Flatten((640,)), LeoConfig()).parameters()) == 172_736


def test_all_steps_and_their_meta_gradient_match_autograd():
    method, (support, labels) = build(), supports()
    found = method.learn(support, labels, WAYS).weights
    slow = torch.stack([learn_slowly(method, x, y) for x, y in zip(support, labels, strict=True)])
    torch.testing.assert_close(found, slow)
    start = class_means(method.decode(method.encode(support, labels, WAYS)[0], WAYS)[0], labels, WAYS)
    assert (found - start).abs().max() > 0.05
    target = torch.randn_like(found)
    parameters = [method.encoder.weight, method.decoder.weight, method.code_rate, method.weight_rate]
    ours = torch.autograd.grad((found * target).sum(), parameters)
    theirs = torch.autograd.grad((slow * target).sum(), parameters)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_the_slope_of_a_sampled_weight():
    """dL / dz = (dL / dw, dL / dw o slope) D, also where the spread stands at its least."""
    method = build().train()
    codes = (2 * torch.randn(2, 6, CODE).double()).requires_grad_()
    weights, slope = method.decode(codes, WAYS)
    upstream = torch.randn_like(weights)
    expected = torch.autograd.grad((weights * upstream).sum(), codes)[0]
    found = torch.cat([upstream, upstream * slope], -1) @ method.decoder.weight
    torch.testing.assert_close(found, expected)
    assert (slope == 0).any() and (slope != 0).any()


def test_gradients_are_those_of_the_summed_loss_with_uneven_classes():
    support, labels = supports()
    weights = torch.randn(2, 6, FEATURES).double().requires_grad_()
    loss = sum(support_loss(w, x, y) for w, x, y in zip(weights, support, labels, strict=True))
    expected = torch.autograd.grad(loss, weights)[0]
    found = Leo.weight_gradient(weights, support, one_hot(labels, WAYS).double())
    torch.testing.assert_close(found, expected)


def test_regularisers_in_numpy():
    rng = np.random.default_rng(0)
    z, a, s = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), rng.uniform(0.1, 2, (3, 4))

    def log_normal(x, mean, scale):
        return -0.5 * ((x - mean) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)

    kl = np.mean(log_normal(z, a, s) - log_normal(z, 0, 1))
    assert kl_estimate(*map(torch.tensor, (z, a, s))).item() == pytest.approx(kl)
    matrix = rng.normal(size=(4, 9))
    expected = np.mean(
        [
            (matrix[i] @ matrix[j] / np.linalg.norm(matrix[i]) / np.linalg.norm(matrix[j]) - (i == j)) ** 2
            for i in range(4)
            for j in range(4)
        ]
    )
    assert orthogonality(torch.tensor(matrix)).item() == pytest.approx(expected)
    assert orthogonality(torch.linalg.qr(torch.randn(9, 4))[0].T).item() < 1e-12
    raw = torch.tensor([-3.0, 0.0, 1.0], dtype=torch.float64)
    np.testing.assert_allclose(spread(raw), [1e-10, 1e-10, np.e - 1])
    assert spread(torch.zeros(1), (2 / 645) ** 0.5).item() == pytest.approx(0.0557, abs=1e-4)


def test_the_loss_adds_up_and_the_penalty_stops_its_gradient_at_the_last_codes():
    method = build(kl_weight=0.5, encoder_penalty=0.2, l2=0.01, orthogonality=0.3)
    given = TrainBatch((episode(),), (Answers(torch.randint(0, WAYS, (2, 4)), torch.zeros(2, WAYS).long()),))
    terms = method.loss(given)
    task = given.episodes[0]
    log_probs = method.predict(task).log_probs
    nll = F.nll_loss(log_probs.flatten(0, 1), given.answers[0].query_labels.flatten())
    learnt = method.learn(task.support, task.support_labels, WAYS)
    gap = (learnt.last_codes - learnt.first_codes).square().mean()
    squares = sum(p.square().sum() for name, p in method.named_parameters() if "rate" not in name)
    kl = kl_estimate(learnt.first_codes, learnt.mean, learnt.scale)
    expected = nll + 0.5 * kl + 0.2 * gap + 0.005 * squares + 0.3 * orthogonality(method.decoder.weight.T)
    torch.testing.assert_close(terms.total, expected)
    torch.testing.assert_close(terms.terms["encoder_gap"], gap.detach())
    only_gap = build(kl_weight=0.0, encoder_penalty=1.0, l2=0.0, orthogonality=0.0)
    code_rate = torch.autograd.grad(only_gap.loss(given).total, only_gap.code_rate)[0]
    without = build(kl_weight=0.0, encoder_penalty=0.0, l2=0.0, orthogonality=0.0)
    torch.testing.assert_close(code_rate, torch.autograd.grad(without.loss(given).total, without.code_rate)[0])


def test_zero_rates_leave_the_decoded_codes():
    method, (support, labels) = build(), supports()
    method.code_rate.data.zero_()
    method.weight_rate.data.zero_()
    mean, _ = method.encode(support, labels, WAYS)
    expected = class_means(method.decode(mean, WAYS)[0], labels, WAYS)
    torch.testing.assert_close(method.learn(support, labels, WAYS).weights, expected)
    without = build(code_steps=0, weight_steps=0)
    torch.testing.assert_close(without.learn(support, labels, WAYS).weights, expected)


def test_codes_follow_the_classes_and_not_the_order_of_shots():
    method, (support, labels) = build(), supports()
    order, names = torch.randperm(6), torch.tensor([2, 0, 1])
    before = method.learn(support, labels, WAYS).weights
    after = method.learn(support[:, order], names[labels[:, order]], WAYS).weights
    torch.testing.assert_close(after[:, names], before)
    mean, _ = method.encode(support, labels, WAYS)
    assert torch.equal(mean[0, 1], mean[0, 2])  # copies of one class


def test_copies_are_sampled_apart_in_training_only():
    method, (support, labels) = build(dropout=0.0), supports()
    method.relation[4].weight.data += 1.0  # spreads that show
    learnt = method.train().learn(support, labels, WAYS)
    assert not torch.allclose(learnt.first_codes[0, 1], learnt.first_codes[0, 2])
    learnt = method.eval().learn(support, labels, WAYS)
    assert torch.equal(learnt.first_codes[0, 1], learnt.first_codes[0, 2])


def test_it_learns_at_test_without_autograd():
    method, task = build(), episode()
    expected = method.predict(task).log_probs
    with torch.inference_mode():
        assert torch.equal(method.predict(task).log_probs, expected)
    longer = replace(task, support=3 * task.support, query=0.2 * task.query)
    torch.testing.assert_close(method.predict(longer).log_probs, expected)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"code_width": 0}, "code_width = 0 but at least 1 is needed"),
        ({"weight_steps": -1}, "weight_steps = -1 but at least 0 is needed"),
        ({"kl_weight": -1.0}, "kl_weight = -1.0 but at least 0 is needed"),
        ({"dropout": 1.0}, "dropout = 1.0 but it lies from 0 to below 1"),
    ],
)
def test_settings_that_cannot_be_are_told(settings, told):
    with pytest.raises(EngramError, match=told):
        build(**settings)


def test_centring_follows_the_mean_of_training_tasks_and_takes_it_away() -> None:
    plain, centred = build(), build(centring=True)
    task = episode()
    centred.train()
    centred.loss(TrainBatch((task,), (Answers(torch.zeros(2, 4, dtype=torch.long), LABELS[:, :3].expand(2, 3)),)))
    centred.eval()
    mean = torch.cat([task.support, task.query], 1).flatten(0, 1).mean(0)
    torch.testing.assert_close(centred.base_mean, mean)
    moved = replace(task, support=task.support - mean, query=task.query - mean)
    torch.testing.assert_close(centred.predict(task).log_probs, plain.predict(moved).log_probs)
    assert not torch.allclose(centred.predict(task).log_probs, plain.predict(task).log_probs, atol=1e-3)
