"""Quadrature against a dense integral, samples against their moments, L_B against loops."""

import numpy as np
import pytest
import torch

from engram.nn import graph
from engram.nn.bayes import EdgePosterior, LogitPosterior, Quadrature, TaskPosterior, bayes_loss


def expected_sigmoid(mean: float, variance: float) -> float:
    x = np.linspace(-12, 12, 40_001)
    density = np.exp(-(x**2) / 2)
    return float((density / (1 + np.exp(-(mean + np.sqrt(variance) * x)))).sum() / density.sum())


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 1.0), (2.0, 0.5), (-3.0, 4.0), (1.0, 9.0), (0.7, 0.0)])
def test_quadrature_is_the_integral(mean, variance):
    found = Quadrature()(torch.tensor(mean), torch.tensor(variance)).item()
    assert found == pytest.approx(expected_sigmoid(mean, variance), abs=2e-4)
    if variance:  # a quadrature that ignored the variance would not pass
        assert abs(found - 1 / (1 + np.exp(-mean))) > 1e-3 or mean == 0


def posterior(per_edge: bool) -> LogitPosterior:
    generator = torch.Generator().manual_seed(0)
    shape = (2, 4, 4) if per_edge else (2, 1, 1)
    fields = [torch.rand(shape, generator=generator) for _ in range(4)]
    return LogitPosterior(torch.randn(2, 4, 4, generator=generator), *fields)


@pytest.mark.parametrize("per_edge", [True, False])
def test_samples_have_the_moments_of_the_logit(per_edge):
    torch.manual_seed(0)
    given = posterior(per_edge)
    mean, variance = given.moments()
    expected = given.score**2 * given.weight_variance + given.bias_variance
    torch.testing.assert_close(variance, expected)
    logits = torch.logit(given.sample(20_000).double())
    torch.testing.assert_close(logits.mean(0).float(), mean, atol=0.06, rtol=0)
    torch.testing.assert_close(logits.var(0).float(), variance, atol=0.02, rtol=0.08)
    torch.testing.assert_close(given.sample(20_000).mean(0), Quadrature()(mean, variance), atol=0.01, rtol=0)


def test_a_task_shares_one_weight_and_bias_and_edges_do_not():
    for per_edge in (False, True):
        given = posterior(per_edge)
        logits = torch.logit(given.sample(1)[0, 0].double()).flatten()
        design = torch.stack([given.score[0].double().flatten(), torch.ones(16, dtype=torch.double)], 1)
        solution = torch.linalg.lstsq(design, logits[:, None]).solution
        residual = (design @ solution)[:, 0] - logits
        assert (residual.abs().max() < 1e-4) == (not per_edge)


def test_the_task_posterior_sees_a_set():
    net = TaskPosterior(6)
    hidden, score = torch.randn(3, 5, 6), torch.rand(3, 5, 5)
    given = net(hidden, graph.differences(hidden), score)
    permuted = hidden[:, torch.randperm(5)]
    again = net(permuted, graph.differences(permuted), score)
    assert given.weight_mean.shape == (3, 1, 1)
    for a, b in zip(given, again, strict=True):
        torch.testing.assert_close(a, b)
    assert given.weight_mean.std() > 0  # it does depend on the task
    assert (given.weight_variance > 0).all() and (given.bias_variance > 0).all()


def test_the_edge_posterior_follows_the_pairs():
    net = EdgePosterior(6).eval()
    hidden, score, order = torch.randn(2, 5, 6), torch.rand(2, 5, 5), torch.randperm(5)
    given = net(hidden, graph.differences(hidden), score)
    permuted = hidden[:, order]
    again = net(permuted, graph.differences(permuted), score[:, order][:, :, order])
    for a, b in zip(given, again, strict=True):
        torch.testing.assert_close(a[:, order][:, :, order], b)
    assert sum(p.numel() for p in EdgePosterior(96).parameters()) == 4 * (96 * 96 + 2 * 96 + 97)


def test_bayes_loss_is_the_log_of_the_average():
    samples = torch.rand(4, 2, 3, 5, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([[0, 4, 2], [1, 1, 3]])
    terms = []
    for b in range(2):
        for q in range(3):
            terms.append(-np.log(np.mean([samples[m, b, q, labels[b, q]].item() for m in range(4)])))
    found = bayes_loss(samples, labels).item()
    assert found == pytest.approx(np.mean(terms), abs=1e-6)
    average_of_logs = -samples.log().mean(0).gather(-1, labels[..., None]).mean().item()
    assert found < average_of_logs - 1e-3
