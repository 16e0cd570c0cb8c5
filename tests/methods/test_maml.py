"""MAML: sizes, the inner loop by hand, what a rate of 0 leaves, and what query statistics may leak."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from learner_tasks import WAYS, batch, episode

from engram.errors import EngramError
from engram.evaluation.evaluate import check_prediction
from engram.methods.maml import Maml, MamlConfig
from engram.nn import adapt
from engram.nn.backbones import ConvBlocks


def build(**changes):
    torch.manual_seed(0)
    return Maml(ConvBlocks((1, 16, 16), width=4), MamlConfig(**{"n_way": WAYS, "inner_steps": 2, **changes}))


def test_parameter_counts():
    method = Maml(ConvBlocks((3, 84, 84), width=32), MamlConfig())
    counts = {name: p.numel() for name, p in method.named_parameters()}
    assert sum(counts.values()) == 32_773
    assert sum(n for name, n in counts.items() if not name.endswith("1.bias")) == 32_645  # the inner loop adapts these


def test_the_inner_loop_in_plain_autograd():
    method, given = build(test_steps=3), episode()[0]
    network = adapt.network(method.backbone, method.head, WAYS)
    found = method.predict(given)
    for task in range(2):
        phi = {name: p.detach().clone() for name, p in method.named_parameters()}
        adapted = [name for name in phi if not name.endswith("1.bias")]  # BatchNorm shifts are not adapted
        for step in range(3):
            leaves = [phi[name].requires_grad_() for name in adapted]
            loss = F.cross_entropy(network(phi, given.support[task]), given.support_labels[task])
            torch.testing.assert_close(found.details["support_losses"][task, step], loss.detach(), atol=1e-5, rtol=0)
            for name, gradient in zip(adapted, torch.autograd.grad(loss, leaves), strict=True):
                phi[name] = phi[name].detach() - 0.05 * gradient
        for q in range(4):
            images = torch.cat([given.support[task], given.query[task, q : q + 1]])
            expected = network(phi, images)[-1].log_softmax(-1)
            torch.testing.assert_close(found.log_probs[task, q], expected.detach(), atol=1e-4, rtol=0)


def test_the_loss_and_its_gradient_are_those_of_the_queries_without_steps():
    method, given = build(inner_steps=0), batch(steps=2)
    weights, network = dict(method.named_parameters()), adapt.network(method.backbone, method.head, WAYS)
    terms = method.loss(given)
    terms.total.backward()
    found = {name: p.grad.clone() for name, p in method.named_parameters()}
    method.zero_grad()
    images, labels = given.tasks()[2:]
    plain = torch.stack([F.cross_entropy(network(weights, x), y) for x, y in zip(images, labels, strict=True)]).mean()
    plain.backward()
    torch.testing.assert_close(terms.total, plain)
    for name, p in method.named_parameters():
        torch.testing.assert_close(found[name], p.grad, atol=1e-5, rtol=1e-4)
    assert terms.terms["finite_inner_steps"] == 0
    base = network(weights, episode()[0].query[0]).log_softmax(-1)
    together = build(test_steps=0, query_statistics="queries").predict(episode()[0]).log_probs[0]
    torch.testing.assert_close(together, base.detach(), atol=1e-5, rtol=0)


def test_first_and_second_order_agree_without_steps_alone():
    gradients = {}
    for steps in (0, 2):
        for first_order in (False, True):
            method = build(inner_steps=steps, first_order=first_order, inner_rate=0.5)
            method.loss(batch(steps=2)).total.backward()
            gradients[steps, first_order] = method.head.weight.grad
    assert torch.equal(gradients[0, False], gradients[0, True])
    assert (gradients[2, False] - gradients[2, True]).abs().max() > 1e-3


def test_fewer_tasks_at_once_change_nothing():
    gradients = []
    for at_once in (0, 1):
        method = build(tasks_at_once=at_once)
        method.loss(batch(steps=2)).total.backward()
        gradients.append(method.head.weight.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("statistics", ["with_support", "queries"])
def test_queries_see_each_other_only_with_their_own_statistics(statistics):
    method, given = build(query_statistics=statistics), episode()[0]
    changed = replace(given, query=torch.cat([given.query[:, :1], given.query[:, 1:] * 3 + 1], 1))
    gap = (method.predict(given).log_probs[:, 0] - method.predict(changed).log_probs[:, 0]).abs().max()
    assert (gap > 1e-3) == method.card.transductive == (statistics == "queries")
    assert method.card.batch_norm == {"queries": "task", "with_support": "support"}[statistics]


def test_renaming_classes_renames_answers_only_if_the_rows_of_the_head_go_along():
    method, given = build(inner_rate=0.5), episode()[0]
    new = torch.tensor([2, 0, 1])
    renamed, plain = replace(given, support_labels=new[given.support_labels]), method.predict(given).log_probs
    assert (method.predict(renamed).log_probs[..., new] - plain).abs().max() > 1e-3
    with torch.no_grad():
        order = torch.argsort(new)
        method.head.weight.copy_(method.head.weight[order])
        method.head.bias.copy_(method.head.bias[order])
    torch.testing.assert_close(method.predict(renamed).log_probs[..., new], plain, atol=1e-4, rtol=0)


def test_unequal_shots_and_fewer_ways_are_answered():
    method, given = build(n_way=5), episode()[0]
    uneven = replace(
        given, support=given.support[:, :5], support_labels=torch.tensor([[0, 0, 0, 1, 2], [2, 1, 0, 0, 1]])
    )
    assert method.predict(uneven).log_probs.shape == (2, 4, WAYS)
    with pytest.raises(EngramError, match="n_way = 3 but a task has 4 classes"):
        build().predict(replace(given, n_way=4))


def test_an_inner_rate_that_diverges_is_told_with_its_step():
    method, given = build(test_steps=4), episode()[0]
    method.config = replace(method.config, inner_rate=1e30)  # no recipe may have it
    with pytest.raises(EngramError, match=r"the adaptation broke at inner step [12] of 4: lower the inner rate"):
        check_prediction(method.predict(given), given, "Maml")
    terms = method.loss(batch(steps=2))
    assert not torch.isfinite(terms.total) and terms.terms["finite_inner_steps"] in (1, 2)


@pytest.mark.parametrize(("key", "value"), [("n_way", 1), ("inner_steps", -1), ("test_steps", -1)])
def test_bad_settings_are_named(key, value):
    with pytest.raises(EngramError, match=rf"\[method\] {key} = {value} but at least"):
        build(**{key: value})


@pytest.mark.parametrize("rate", [-0.1, 0.0, 1e-9, 11.0, float("inf"), float("nan")])
def test_an_inner_rate_that_makes_no_sense_is_named_with_the_range_that_does(rate):
    with pytest.raises(EngramError, match=rf"\[method\] inner_rate = {rate} but it makes sense from 1e-06 to 10 alone"):
        build(inner_rate=rate)
