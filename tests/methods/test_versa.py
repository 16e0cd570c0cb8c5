"""VERSA: what the posterior sees, the logits against explicit samples of weights, and repeatable evaluation."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from engram.errors import EngramError
from engram.methods.versa import Posterior, Versa, VersaConfig
from engram.models.build import build_method
from engram.nn.backbones import Conv5, ConvBlocks, Flatten
from engram.recipes import load_recipe
from engram.types import Answers, Episode, TrainBatch

FEATURES, WAYS = 6, 3


def build(**settings) -> Versa:
    torch.manual_seed(0)
    return Versa(Flatten((FEATURES,)), VersaConfig(**{"width": 8, **settings})).eval()


def episode() -> Episode:
    labels = torch.tensor([[0, 1, 1, 2, 0, 1]]).expand(2, 6)
    return Episode(torch.randn(2, 6, FEATURES), labels, torch.randn(2, 7, FEATURES), WAYS)


def test_parameter_counts():
    backbone = Conv5((3, 84, 84))
    assert backbone.out_shape == (256,)
    method = Versa(backbone, VersaConfig())
    assert sum(p.numel() for p in method.backbone.parameters()) == 149_504
    assert sum(p.numel() for p in method.posterior.parameters()) == 658_434


def test_the_posterior_sees_class_means_only():
    method, task = build(), episode()
    noise = torch.randn(2, 6, FEATURES)
    centred = torch.zeros_like(noise)
    for c in range(WAYS):  # perturbations that add up to nothing within a class
        members = task.support_labels[0] == c
        centred[:, members] = noise[:, members] - noise[:, members].mean(1, keepdim=True)
    before, after = method.predict(task), method.predict(replace(task, support=task.support + 5 * centred))
    torch.testing.assert_close(after.log_probs, before.log_probs, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(method.predict(replace(task, support=task.support + noise)).log_probs, before.log_probs)


def test_a_class_ignores_the_others():
    posterior, means = build().posterior, torch.randn(2, WAYS, FEATURES)
    changed = torch.cat([means[:, :1], torch.randn(2, WAYS - 1, FEATURES)], 1)
    for one, other in zip(posterior(means), posterior(changed), strict=True):
        torch.testing.assert_close(one[:, 0], other[:, 0])


def test_sampled_weights_reproduce_the_mean_and_variance_of_the_logits():
    method, task = build(), episode()
    mean, variance = method.logits(task)
    class_features = torch.stack([task.support[0, task.support_labels[0] == c].mean(0) for c in range(WAYS)])
    weight, weight_variance, bias, bias_variance = method.posterior(class_features[None])
    draws = 20_000
    weights = weight[0] + weight_variance[0].sqrt() * torch.randn(draws, WAYS, FEATURES)
    biases = bias[0] + bias_variance[0].sqrt() * torch.randn(draws, WAYS)
    logits = torch.einsum("qd,ncd->nqc", task.query[0], weights) + biases[:, None]
    tolerance = 5 * (variance[0] / draws).sqrt().max().item()
    torch.testing.assert_close(logits.mean(0), mean[0], atol=tolerance, rtol=0)
    torch.testing.assert_close(logits.var(0), variance[0], atol=0, rtol=0.06)


def test_without_spread_it_is_a_linear_classifier():
    method, task = build(), episode()
    for network in (method.posterior.weight_log_variance, method.posterior.bias_log_variance):
        network[4].weight.data.zero_()
        network[4].bias.data.fill_(-1e3)
    expected = F.log_softmax(method.logits(task)[0], -1)
    torch.testing.assert_close(method.predict(task).log_probs, expected, atol=2e-3, rtol=0)


def test_answers_are_mean_probabilities_and_the_loss_is_their_log():
    method, task = build(), episode()
    prediction = method.predict(task)
    samples = prediction.details["samples"]
    assert samples.shape == (1024, 2, 7, WAYS)
    torch.testing.assert_close(prediction.log_probs.exp(), samples.mean(0))
    labels = torch.randint(0, WAYS, (2, 7))
    batch = TrainBatch((task,), (Answers(labels, torch.zeros(2, WAYS).long()),))
    score = samples.mean(0).gather(-1, labels[..., None]).log().mean()
    torch.testing.assert_close(method.loss(batch).total, -score)
    assert score >= samples.gather(-1, labels.expand(1024, 2, 7)[..., None]).log().mean()  # Jensen
    torch.manual_seed(1)
    first = method.train().loss(batch).total
    assert not torch.allclose(method.loss(batch).total, first)  # fresh samples in training


def test_the_reference_averages_logits_and_answers_otherwise():
    method, task = build(average="logits"), episode()
    method.posterior.weight_log_variance[4].bias.data.fill_(2.0)
    mean, variance = method.logits(task)
    sampled = mean + variance.sqrt() * method._noise(mean)
    torch.testing.assert_close(method.predict(task).log_probs, sampled.exp().sum(0).log().log_softmax(-1))
    ours = Versa(Flatten((FEATURES,)), VersaConfig(width=8)).eval()
    ours.load_state_dict(method.state_dict())
    assert not torch.allclose(ours.predict(task).log_probs, method.predict(task).log_probs, atol=0.1)


def test_samples_at_test_are_fixed_and_know_neither_slots_nor_numbers_of_classes():
    method, task = build(), episode()
    torch.manual_seed(5)
    before = method.predict(task).log_probs
    torch.manual_seed(6)
    assert torch.equal(method.predict(task).log_probs, before)
    names, order = torch.tensor([2, 0, 1]), torch.randperm(7)
    renamed = replace(task, support_labels=names[task.support_labels], query=task.query[:, order])
    torch.testing.assert_close(method.predict(renamed).log_probs[..., names], before[:, order])


def spread(mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    """Answers of a method whose logits are so distributed: (Q, ways) -> (Q, ways)"""
    method, ways = build(), mean.shape[-1]
    method.logits = lambda episode: (mean[None], deviation[None].square())
    nothing = Episode(torch.zeros(1, 1, 1), torch.zeros(1, 1), torch.zeros(1, 1, 1), ways)
    return method.classify(nothing).log_probs[0].exp()


def test_five_logits_from_minus_1_to_1_with_deviation_1_are_answered_as_endless_draws_would():
    """0.386 for the largest; ten draws that all queries shared said 0.532."""
    found = spread(torch.linspace(-1, 1, 5)[None], torch.ones(1, 5))[0]
    torch.testing.assert_close(found, torch.tensor([0.0717, 0.1120, 0.1721, 0.2589, 0.3853]), atol=2e-3, rtol=0)


@pytest.mark.parametrize(("largest", "ways", "tolerance"), [(2.0, 5, 0.003), (2.0, 20, 0.003), (20.0, 5, 0.01)])
def test_samples_at_test_tell_what_ten_thousand_draws_tell(largest, ways, tolerance):
    torch.manual_seed(3)
    mean, deviation = 2 * torch.randn(40, ways), largest * torch.rand(40, ways)
    draws = (mean + deviation * torch.randn(10_000, 40, ways)).softmax(-1)
    chance = 4.5 * draws.std(0) / 100  # of 800 means of 10,000 draws
    error = spread(mean, deviation) - draws.mean(0)
    assert bool((error.abs() <= tolerance + chance).all())
    ranked = error.gather(-1, mean.argsort(-1)).mean(0)
    assert ranked.abs().max() < 0.004  # no rank is favoured over all queries


def coloured_task() -> TrainBatch:
    """Three classes that differ in colour, one support and three queries of each."""
    torch.manual_seed(0)
    images, labels = torch.randint(0, 256, (1, 12, 3, 32, 32), dtype=torch.uint8), torch.arange(3)[None]
    images[:, 0::3, 0], images[:, 1::3, 1] = 255, 255
    asked = Answers(torch.arange(9)[None] % 3, labels)
    return TrainBatch((Episode(images[:, :3], labels, images[:, 3:], WAYS),), (asked,))


def test_the_reference_recipe_is_the_released_code():
    recipe = load_recipe("versa/mini_5w1s_reference")
    assert recipe.backbone == "conv5" and recipe.backbone_settings == {"dropout": 0.5}
    assert (recipe.train.iterations, recipe.train.sequences, recipe.train.learning_rate) == (50_000, 8, 2.5e-4)
    assert (recipe.data.n_query, recipe.data.normalisation, recipe.data.augmentation) == (15, "unit", "none")
    method = build_method(recipe, (3, 84, 84), torch.device("cpu"))
    assert (method.config.samples, method.config.batch_norm, method.config.average) == (10, "task", "logits")
    assert method.card.transductive and not method.card.stochastic


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_reference_recipe_runs_in_small(dropout):
    """Dropout of one half in five blocks takes long to learn; without it some steps suffice."""
    recipe, batch = load_recipe("versa/mini_5w1s_reference"), coloured_task()
    small = replace(recipe, backbone_settings={"width": 16, "dropout": dropout})
    method = build_method(small, (3, 32, 32), torch.device("cpu"))
    before = method.eval().loss(batch).total.item()
    optimiser = torch.optim.Adam(method.train().parameters(), recipe.train.learning_rate)
    for _ in range(3 if dropout else 20):
        optimiser.zero_grad()
        method.loss(batch).total.backward()
        assert all(torch.isfinite(p.grad).all() for p in method.parameters())
        optimiser.step()
    assert dropout or method.eval().loss(batch).total.item() < 0.5 * before
    answers = method.eval().predict(batch.episodes[0]).log_probs
    assert torch.equal(method.predict(batch.episodes[0]).log_probs, answers) and torch.isfinite(answers).all()


def test_queries_see_each_other_only_by_the_references_statistics():
    images = torch.randint(0, 255, (2, 10, 1, 28, 28)).float() / 255
    labels = torch.tensor([[0, 1, 2]]).expand(2, 3)
    for kind in ("running", "task"):
        method = Versa(ConvBlocks((1, 28, 28), width=8), VersaConfig(width=8, batch_norm=kind)).eval()
        whole = method.predict(Episode(images[:, :3], labels, images[:, 3:], WAYS)).log_probs
        alone = method.predict(Episode(images[:, :3], labels, images[:, 3:4], WAYS)).log_probs
        assert torch.allclose(whole[:, :1], alone, atol=1e-4) == (kind == "running")
        assert method.card.transductive == (kind == "task") and method.card.batch_norm == kind


@pytest.mark.parametrize("key", ["samples", "test_samples", "width"])
def test_settings_that_cannot_be_are_told(key):
    with pytest.raises(EngramError, match=rf"\[method\] {key} = 0 but at least 1 is needed"):
        build(**{key: 0})


def test_variances_stay_finite():
    posterior = Posterior(FEATURES, 8)
    assert all(torch.isfinite(part).all() for part in posterior(1e6 * torch.randn(1, WAYS, FEATURES)))
