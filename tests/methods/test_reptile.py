"""REPTILE: sizes, the inner Adam, the surrogate loss whose gradient is a difference of weights, and evaluation."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from learner_tasks import WAYS, batch, episode

from engram.errors import EngramError
from engram.methods.reptile import Reptile, ReptileConfig, fixed_batches, random_batches
from engram.nn import adapt
from engram.nn.backbones import build_backbone
from engram.types import TrainBatch


def build(**changes):
    torch.manual_seed(0)
    settings = {"n_way": WAYS, "inner_steps": 3, "inner_batch": 4, "test_steps": 4, **changes}
    return Reptile(build_backbone("conv32_same", (1, 16, 16), {"width": 4}), ReptileConfig(**settings))


def test_parameter_counts_and_pooling_that_rounds_up():
    backbone = build_backbone("conv32_same", (3, 84, 84), {})
    assert backbone.out_shape == (1152,) and sum(p.numel() for p in backbone.parameters()) == 28_896
    assert sum(p.numel() for p in Reptile(backbone, ReptileConfig()).parameters()) == 34_661


def test_a_head_of_zeros_leaves_convolutions_alone_in_the_first_step():
    for start in ("zero", "xavier"):
        method, given = build(inner_steps=1, head_start=start), batch(queries=3)
        method.loss(given).total.backward()
        moved = {name.split(".")[0] for name, p in method.named_parameters() if p.grad.abs().max() > 1e-6}
        assert moved == ({"head"} if start == "zero" else {"head", "backbone"})


def test_the_surrogate_gradient_is_the_mean_difference_of_weights():
    method, given = build(), batch(queries=3)
    torch.manual_seed(5)
    terms = method.loss(given)
    terms.total.backward()
    fresh = build()
    images = torch.cat([given.episodes[0].support, given.episodes[0].query], 1)
    labels = torch.cat([given.episodes[0].support_labels, given.answers[0].query_labels], 1)
    torch.manual_seed(5)
    batches = random_batches(labels, 3, 4)
    ends, losses = [], []
    for task in range(2):  # an ordinary optimiser on an ordinary module
        learner = deepcopy(fresh)
        adam = torch.optim.Adam(learner.parameters(), 1e-3, betas=(0.0, 0.999))
        for rows in batches[task]:
            loss = F.cross_entropy(learner.head(learner.backbone(images[task, rows])), labels[task, rows])
            adam.zero_grad()
            loss.backward()
            adam.step()
        ends.append(adapt.flat({n: p.detach() for n, p in learner.named_parameters()}))
        losses.append(loss.item())
    start = adapt.flat({n: p.detach() for n, p in fresh.named_parameters()})
    found = adapt.flat({n: p.grad for n, p in method.named_parameters()})
    expected = start - torch.stack(ends).mean(0)
    # A first Adam step is the sign of a gradient: where that is 0 but for rounding (biases before BatchNorm), noise.
    biases = torch.cat([torch.full((p.numel(),), n.endswith("0.bias")) for n, p in method.named_parameters()])
    torch.testing.assert_close(found[~biases], expected[~biases], atol=2e-5, rtol=0)
    assert terms.total.item() == pytest.approx(sum(losses) / 2, rel=1e-3)
    assert terms.terms["finite_inner_steps"] == 3


def test_one_step_of_sgd_with_rate_1_arrives_at_the_tasks_weights_and_rate_0_stays():
    for rate in (0.0, 1.0):
        method, given = build(), batch(queries=3)
        given = TrainBatch(given.episodes[0:1], given.answers)
        before = {n: p.detach().clone() for n, p in method.named_parameters()}
        total = method.loss(given).total
        sgd = torch.optim.SGD(method.parameters(), rate)
        total.backward()
        goal = {n: before[n] - p.grad for n, p in method.named_parameters()}
        sgd.step()
        for name, p in method.named_parameters():
            assert torch.equal(p, before[name] if rate == 0 else goal[name])


def test_the_second_moment_goes_on_in_training_and_stays_at_test():
    method = build()
    method.train().loss(batch(queries=3))
    assert method.steps_made == 3 and method.second_moment.max() > 0
    state = {n: v.clone() for n, v in method.state_dict().items()}
    method.eval()
    given = episode(queries=3)[0]
    first = method.predict(given).log_probs
    assert torch.equal(first, method.predict(given).log_probs)
    assert all(torch.equal(v, state[n]) for n, v in method.state_dict().items())
    method.second_moment.zero_()
    assert (method.predict(given).log_probs - first).abs().max() > 1e-4  # evaluation starts from the trained one


def test_batches_are_reshuffled_passes_without_replacement():
    torch.manual_seed(0)
    drawn = random_batches(torch.zeros(50, 6), 4, 4)
    assert drawn.shape == (50, 4, 4)
    first_pass = drawn.flatten(1)[:, :6].sort(1).values
    assert torch.equal(first_pass, torch.arange(6).expand(50, 6)) and drawn[:, 0, 0].unique().tolist() == list(range(6))
    fixed = fixed_batches(5, 3, 5)
    assert torch.equal(fixed.sort(1).values, torch.arange(5).expand(3, 5)) and torch.equal(
        fixed, fixed_batches(5, 3, 5)
    )


def test_one_shot_with_the_whole_support_in_a_batch_does_not_see_its_order():
    method, given = build(test_batch=6).eval(), episode(queries=3)[0]
    order = torch.randperm(6)
    turned = replace(given, support=given.support[:, order], support_labels=given.support_labels[:, order])
    torch.testing.assert_close(method.predict(given).log_probs, method.predict(turned).log_probs, atol=1e-3, rtol=0)


def test_answers_against_a_plain_loop():
    method, given = build().eval(), episode(queries=3)[0]
    network = adapt.network(method.backbone, method.head, WAYS)
    found = method.predict(given)
    weights = {n: p.detach() for n, p in method.named_parameters()}
    batches = fixed_batches(6, 4, 5)
    for task in range(2):
        row, _, losses = method.trained(network, weights, given.support[task], given.support_labels[task], batches)
        torch.testing.assert_close(found.details["support_losses"][task], losses.detach(), atol=1e-4, rtol=0)
        for q in range(3):
            images = torch.cat([given.support[task], given.query[task, q : q + 1]])
            expected = network(adapt.shaped(row, weights), images)[-1].log_softmax(-1)
            torch.testing.assert_close(found.log_probs[task, q], expected.detach(), atol=2e-3, rtol=0)


@pytest.mark.parametrize("statistics", ["with_support", "queries"])
def test_queries_see_each_other_only_with_transduction(statistics):
    method, given = build(query_statistics=statistics), episode(queries=3)[0]
    changed = replace(given, query=torch.cat([given.query[:, :1], given.query[:, 1:] * 3 + 1], 1))
    gap = (method.predict(given).log_probs[:, 0] - method.predict(changed).log_probs[:, 0]).abs().max()
    assert (gap > 1e-3) == method.card.transductive == (statistics == "queries")


@pytest.mark.parametrize(("key", "value"), [("n_way", 1), ("inner_steps", 0), ("test_batch", 0)])
def test_bad_settings_are_named(key, value):
    with pytest.raises(EngramError, match=rf"\[method\] {key} = {value} but at least"):
        build(**{key: value})


@pytest.mark.parametrize("rate", [-0.1, 0.0, 1.5, float("nan")])
def test_an_inner_rate_that_makes_no_sense_is_named_with_the_range_that_does(rate):
    with pytest.raises(EngramError, match=rf"\[method\] inner_rate = {rate} but it makes sense from 1e-06 to 1 alone"):
        build(inner_rate=rate)
