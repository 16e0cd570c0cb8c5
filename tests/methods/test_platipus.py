"""PLATIPUS: sizes, the KL term, its limit as MAML, and answers that average samples and never see query labels."""

from dataclasses import replace

import pytest
import torch
from learner_tasks import WAYS, batch, episode
from torch.distributions import Independent, Normal, kl_divergence

from engram.errors import EngramError
from engram.methods.maml import Maml, MamlConfig
from engram.methods.platipus import Platipus, PlatipusConfig, kl
from engram.nn import adapt
from engram.nn.backbones import ConvBlocks
from engram.recipes import load_recipe, recipe_names
from engram.types import Answers, Episode, TrainBatch


def build(**changes):
    torch.manual_seed(0)
    settings = {"n_way": WAYS, "inner_steps": 2, "samples": 3, **changes}
    return Platipus(ConvBlocks((1, 16, 16), width=4), PlatipusConfig(**settings)).double()


def test_parameter_counts():
    method = Platipus(ConvBlocks((3, 84, 84), width=32), PlatipusConfig())
    assert sum(p.numel() for p in method.parameters()) == 3 * 32_773 + 2
    assert not any("draws" in name for name in method.state_dict())


def test_the_divergence_is_that_of_torch_distributions_and_never_negative():
    torch.manual_seed(0)
    for _ in range(5):
        mean, prior_mean, log_variance, prior_log_variance = torch.randn(4, 7).double()
        own = Independent(Normal(mean, (log_variance / 2).exp()), 1)
        prior = Independent(Normal(prior_mean, (prior_log_variance / 2).exp()), 1)
        found = kl(mean, log_variance, prior_mean, prior_log_variance)
        torch.testing.assert_close(found, kl_divergence(own, prior))
        assert found >= 0
    assert kl(mean, log_variance, mean, log_variance).abs() < 1e-12


FULL = [n for n in recipe_names() if n.startswith("platipus/") and load_recipe(n).train.iterations >= 20_000]


@pytest.mark.parametrize("name", FULL)
def test_a_full_recipe_starts_with_mamls_inner_rate_and_a_divergence_below_the_loss(name):
    """With first steps of 0.05 the term would begin at some hundred times the loss and take up the whole gradient."""
    recipe, maml = load_recipe(name), load_recipe("maml/mini_5w1s")
    assert recipe.method_settings["inner_rate"] == maml.method_settings["inner_rate"]
    assert recipe.method_settings["initial_step"] == PlatipusConfig().initial_step
    torch.manual_seed(0)
    method = Platipus(ConvBlocks((3, 32, 32), width=32), PlatipusConfig(**recipe.method_settings | {"inner_steps": 0}))
    support, query = torch.rand(1, 5, 3, 32, 32), torch.rand(1, 75, 3, 32, 32)
    task = Episode(support, torch.arange(5)[None], query, 5)
    terms = method.loss(TrainBatch((task,), (Answers(torch.arange(75)[None] % 5, torch.zeros(1, 5).long()),))).terms
    assert 0 < method.config.kl_weight * terms["kl"] < terms["nll"] / 10


def test_without_steps_and_noise_it_is_maml():
    torch.manual_seed(0)
    maml = Maml(ConvBlocks((1, 16, 16), width=4), MamlConfig(n_way=WAYS, inner_steps=2, test_steps=2)).double()
    method = build(initial_deviation=1e-150, initial_step=0.0)
    terms = method.loss(batch(dtype=torch.float64))
    expected = maml.loss(batch(dtype=torch.float64))
    torch.testing.assert_close(terms.terms["nll"], expected.total.detach(), atol=1e-12, rtol=0)
    terms.total.backward()
    expected.total.backward()
    for name, p in maml.named_parameters():
        torch.testing.assert_close(method.get_parameter(name).grad, p.grad, atol=1e-10, rtol=0)
    answers = [m.predict(episode(dtype=torch.float64)[0]).log_probs for m in (method, maml)]
    torch.testing.assert_close(*answers, atol=1e-10, rtol=0)


def test_the_meta_gradient_of_everything_matches_a_loop_of_plain_autograd():
    method, given = build(initial_deviation=0.1), batch(dtype=torch.float64)
    network = adapt.network(method.backbone, method.head, WAYS)
    torch.manual_seed(3)
    total = method.loss(given).total
    total.backward()
    torch.manual_seed(3)
    noise = torch.randn(2, len(method.log_prior), dtype=torch.float32).double()
    meta = dict(method.named_parameters())
    learner = {n: p for n, p in meta.items() if n not in ("log_prior", "log_posterior", "prior_rate", "posterior_rate")}
    shifts = [n for n in learner if n.endswith("1.bias")]

    def loss_of(weights, images, labels):
        return adapt.cross_entropy(network(weights, images), labels)

    def moved(weights, rate, names, images, labels):
        gradients = torch.autograd.grad(
            loss_of(weights, images, labels), [weights[n] for n in names], create_graph=True
        )
        return weights | {n: weights[n] - rate * g for n, g in zip(names, gradients, strict=True)}

    losses = []
    for (support, labels, query, query_labels), eps in zip(zip(*given.tasks(), strict=True), noise, strict=True):
        posterior = adapt.flat(moved(learner, method.posterior_rate, list(learner), query, query_labels))
        phi = adapt.shaped(posterior + (method.log_posterior / 2).exp() * eps, learner)
        for _ in range(2):
            phi = moved(phi, 0.05, [n for n in learner if n not in shifts], support, labels)
        prior = adapt.flat(moved(learner, method.prior_rate, list(learner), support, labels))
        divergence = kl(posterior, method.log_posterior, prior, method.log_prior)
        losses.append(loss_of(phi, query, query_labels) + 0.01 * divergence)
    expected = torch.stack(losses).mean()
    torch.testing.assert_close(total, expected, atol=1e-5, rtol=0)
    for (name, p), g in zip(meta.items(), torch.autograd.grad(expected, list(meta.values())), strict=True):
        torch.testing.assert_close(p.grad, g, atol=1e-5, rtol=1e-4, msg=name)


def test_answers_average_probabilities_of_fixed_draws_and_repeat():
    method, given = build(initial_deviation=0.1), episode(dtype=torch.float64)[0]
    first, second = method.predict(given), method.predict(given)
    assert torch.equal(first.log_probs, second.log_probs) and not method.card.stochastic
    samples = first.details["samples"]
    assert samples.shape == (3, 2, 4, WAYS)
    torch.testing.assert_close(samples.mean(0), first.log_probs.exp())
    assert torch.equal(build().draws, build().draws)


def test_a_wider_prior_spreads_the_samples():
    spreads = [
        build(initial_deviation=d, initial_step=0.0)
        .predict(episode(dtype=torch.float64)[0])
        .details["samples"]
        .std(0)
        .mean()
        for d in (0.001, 0.1)
    ]
    assert spreads[1] > 2 * spreads[0]


@pytest.mark.parametrize("statistics", ["with_support", "queries"])
def test_queries_see_each_other_only_with_their_own_statistics(statistics):
    method, given = build(query_statistics=statistics), episode(dtype=torch.float64)[0]
    changed = replace(given, query=torch.cat([given.query[:, :1], given.query[:, 1:] * 3 + 1], 1))
    gap = (method.predict(given).log_probs[:, 0] - method.predict(changed).log_probs[:, 0]).abs().max()
    assert (gap > 1e-3) == method.card.transductive == (statistics == "queries")


@pytest.mark.parametrize(("key", "value"), [("samples", 0), ("kl_weight", -1.0), ("initial_deviation", 0.0)])
def test_bad_settings_are_named(key, value):
    with pytest.raises(EngramError, match=rf"\[method\] {key} = {value} but"):
        build(**{key: value})


@pytest.mark.parametrize(("key", "value", "least"), [("inner_rate", 0.0, "1e-06"), ("initial_step", 50.0, "0")])
def test_step_sizes_that_make_no_sense_are_named_with_the_range_that_does(key, value, least):
    with pytest.raises(EngramError, match=rf"\[method\] {key} = {value} but it makes sense from {least} to 10 alone"):
        build(**{key: value})
