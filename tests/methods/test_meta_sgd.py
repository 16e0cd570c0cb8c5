"""Meta-SGD: sizes, the identity of the step sizes' gradient, and what constant, zero or partial step sizes are."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from learner_tasks import WAYS, batch, episode

from engram.errors import EngramError
from engram.methods.maml import Maml, MamlConfig
from engram.methods.meta_sgd import MetaSgd, MetaSgdConfig
from engram.models.checkpoint import check_fit
from engram.nn import adapt
from engram.nn.backbones import ConvBlocks
from engram.types import TrainBatch


def build(**changes):
    torch.manual_seed(0)
    return MetaSgd(ConvBlocks((1, 16, 16), width=4), MetaSgdConfig(**{"n_way": WAYS, **changes}))


def randomised(method):
    with torch.no_grad():
        for rate in method.rates:
            rate.uniform_(-0.2, 0.5)
    return method


def test_parameter_counts_and_step_sizes_in_the_checkpoint():
    method = MetaSgd(ConvBlocks((3, 84, 84), width=32), MetaSgdConfig())
    assert sum(p.numel() for p in method.parameters()) == 2 * 32_773
    state = method.state_dict()
    assert sum("rates." in name for name in state) == len(method.names) == 14
    check_fit(state, method.state_dict(), "")
    groups = method.parameter_groups()
    assert [sum(p.numel() for p in g["params"]) for g in groups] == [32_773] * 2 and groups[1]["weight_decay"] == 0


def test_constant_step_sizes_are_one_step_of_maml_that_adapts_its_shifts_too():
    torch.manual_seed(0)
    maml = Maml(ConvBlocks((1, 16, 16), width=4), MamlConfig(n_way=WAYS, inner_steps=1, inner_rate=0.4))
    method = build(initial_rate=0.4)
    with torch.no_grad():  # MAML leaves the shifts of BatchNorm where they are
        for name, rate in zip(method.names, method.rates, strict=True):
            rate.mul_(not name.endswith("1.bias"))
    torch.testing.assert_close(method.loss(batch()).total, maml.loss(batch()).total, atol=1e-6, rtol=0)


def test_the_gradient_of_step_sizes_is_minus_the_product_of_two_gradients():
    method = randomised(build()).double()
    network = adapt.network(method.backbone, method.head, WAYS)
    given, answers = episode()
    given = replace(given, support=given.support.double(), query=given.query.double())
    method.loss(TrainBatch((given,), (answers,))).total.backward()
    expected = [torch.zeros_like(rate) for rate in method.rates]
    for task in range(2):
        theta = {n: p.detach().clone().requires_grad_() for n, p in method.named_parameters() if n in method.names}
        loss = F.cross_entropy(network(theta, given.support[task]), given.support_labels[task])
        first = torch.autograd.grad(loss, list(theta.values()))
        phi = {
            n: (p - r * g).detach().requires_grad_()
            for (n, p), r, g in zip(theta.items(), method.rates, first, strict=True)
        }
        loss = F.cross_entropy(network(phi, given.query[task]), answers.query_labels[task])
        for total, g, h in zip(expected, first, torch.autograd.grad(loss, list(phi.values())), strict=True):
            total -= g * h / 2
    for rate, value in zip(method.rates, expected, strict=True):
        torch.testing.assert_close(rate.grad, value, atol=1e-10, rtol=0)


def test_zero_step_sizes_are_the_base_learner_and_those_of_the_head_alone_leave_the_trunk():
    method, given = build(query_statistics="queries"), episode()[0]
    network = adapt.network(method.backbone, method.head, WAYS)
    for rate in method.rates:
        torch.nn.init.zeros_(rate)
    theta = {n: p for n, p in method.named_parameters() if n in method.names}
    base = torch.stack([network(theta, q).log_softmax(-1) for q in given.query])
    torch.testing.assert_close(method.predict(given).log_probs, base.detach(), atol=1e-5, rtol=0)
    with torch.no_grad():
        for name, rate in zip(method.names, method.rates, strict=True):
            rate.fill_(0.5 if name.startswith("head") else 0.0)
    adapted, _ = method.learner(WAYS)
    phi, _ = adapted(dict(method.named_parameters()), given.support[0], given.support_labels[0])
    for name, p in method.named_parameters():
        if name in phi:
            assert torch.equal(phi[name], p) == (not name.startswith("head"))


@pytest.mark.parametrize("statistics", ["with_support", "queries"])
def test_queries_see_each_other_only_with_their_own_statistics(statistics):
    method, given = randomised(build(query_statistics=statistics)), episode()[0]
    changed = replace(given, query=torch.cat([given.query[:, :1], given.query[:, 1:] * 3 + 1], 1))
    gap = (method.predict(given).log_probs[:, 0] - method.predict(changed).log_probs[:, 0]).abs().max()
    assert (gap > 1e-3) == method.card.transductive == (statistics == "queries")


@pytest.mark.parametrize(("key", "value"), [("n_way", 1), ("tasks_at_once", -1)])
def test_bad_settings_are_named(key, value):
    with pytest.raises(EngramError, match=rf"\[method\] {key} = {value} but at least"):
        build(**{key: value})
    with pytest.raises(EngramError, match="n_way = 3 but a task has 4 classes"):
        build().predict(replace(episode()[0], n_way=4))


@pytest.mark.parametrize("rate", [-0.1, 0.0, 11.0, float("nan")])
def test_step_sizes_that_make_no_sense_are_named_with_the_range_that_does(rate):
    with pytest.raises(EngramError, match=rf"\[method\] initial_rate = {rate} but it makes sense from 1e-06 to 10"):
        build(initial_rate=rate)
