"""The inner loop against plain Python loops and finite differences, in float64 on a smooth network with BatchNorm."""

import gc
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

from engram.errors import EngramError
from engram.nn import adapt
from engram.nn.task_norm import TaskNorm

TASKS, SUPPORTS, QUERIES, WAYS = 3, 6, 4, 3


class Smooth(nn.Module):
    """conv - BatchNorm - tanh - average pool - linear: no kinks, so finite differences are right."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 2, 3), TaskNorm(2), nn.Linear(8, WAYS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(nn.functional.avg_pool2d(self.norm(self.conv(x)).tanh(), 2).flatten(1))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Smooth().double()


@pytest.fixture
def tasks():
    torch.manual_seed(1)
    labels = torch.arange(SUPPORTS).expand(TASKS, -1) % WAYS
    support, query = (torch.randn(TASKS, n, 1, 6, 6, dtype=torch.float64) for n in (SUPPORTS, QUERIES))
    return support, labels, query, torch.randint(0, WAYS, (TASKS, QUERIES))


def loss_of(network, weights, images, labels):
    return adapt.cross_entropy(functional_call(network, dict(weights), (images,)), labels)


def task_loss(network, rates=(0.3, 0.3), first_order=False):
    def of_one_task(weights, support, labels, query, query_labels):
        phi, losses = adapt.descend(lambda w: loss_of(network, w, support, labels), weights, rates, first_order)
        return loss_of(network, phi, query, query_labels), losses

    return of_one_task


def by_plain_autograd(network, tasks, rates, first_order=False):
    """The same meta-gradient task by task, with nothing of torch.func."""
    total = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    values = []
    for support, labels, query, query_labels in zip(*tasks, strict=True):
        phi = dict(network.named_parameters())
        for rate in rates:
            loss = loss_of(network, phi, support, labels)
            gradients = torch.autograd.grad(loss, list(phi.values()), create_graph=not first_order)
            steps = [rate] * len(phi) if isinstance(rate, float) else list(rate.values())
            phi = {n: p - s * g for (n, p), s, g in zip(phi.items(), steps, gradients, strict=True)}
        values.append(loss_of(network, phi, query, query_labels))
        for name, g in zip(total, torch.autograd.grad(values[-1], list(network.parameters())), strict=True):
            total[name] += g / TASKS
    return torch.stack(values).mean(), total


def gradient_of(network, total):
    return dict(zip(dict(network.named_parameters()), torch.autograd.grad(total, network.parameters()), strict=True))


def assert_same(found, expected, tolerance=1e-12):
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=tolerance, rtol=0, msg=name)


@pytest.mark.parametrize("first_order", [False, True])
@pytest.mark.parametrize("at_once", [0, 2])
def test_vmap_equals_a_python_loop_in_values_and_meta_gradients(network, tasks, first_order, at_once):
    weights, rates = dict(network.named_parameters()), (0.3, 0.1, 0.5)
    total, losses = adapt.meta_loss(task_loss(network, rates, first_order), weights, tasks, at_once)
    value, expected = by_plain_autograd(network, tasks, rates, first_order)
    torch.testing.assert_close(total, value, atol=1e-12, rtol=0)
    assert_same(gradient_of(network, total), expected)
    assert losses.shape == (TASKS, 3) and not losses.requires_grad


def test_autograd_around_vmap_is_exact_too(network, tasks):
    weights = dict(network.named_parameters())
    around = vmap(lambda w, *task: task_loss(network)(w, *task)[0], (None, 0, 0, 0, 0))(weights, *tasks).mean()
    assert_same(gradient_of(network, around), by_plain_autograd(network, tasks, (0.3, 0.3))[1])


def test_a_rate_for_each_number_of_each_weight_and_for_each_step(network, tasks):
    weights = dict(network.named_parameters())
    rates = [{name: torch.rand_like(p) for name, p in weights.items()} for _ in range(2)]
    total, _ = adapt.meta_loss(task_loss(network, rates), weights, tasks)
    value, expected = by_plain_autograd(network, tasks, rates)
    torch.testing.assert_close(total, value, atol=1e-12, rtol=0)
    assert_same(gradient_of(network, total), expected)


def test_without_steps_both_orders_are_the_base_learner(network, tasks):
    weights = dict(network.named_parameters())
    orders = [adapt.meta_loss(task_loss(network, (), o), weights, tasks)[0] for o in (False, True)]
    plain = torch.stack([loss_of(network, weights, x, y) for x, y in zip(tasks[2], tasks[3], strict=True)]).mean()
    expected = gradient_of(network, plain)
    for total in (*orders, adapt.meta_loss(task_loss(network, (0.0, 0.0)), weights, tasks)[0]):
        torch.testing.assert_close(total, plain, atol=1e-12, rtol=0)
        assert_same(gradient_of(network, total), expected)


def test_second_order_is_the_true_gradient_and_first_order_is_not(network, tasks):
    one = [part[0] for part in tasks]
    names = list(dict(network.named_parameters()))

    def value(*weights):
        return task_loss(network)(dict(zip(names, weights, strict=True)), *one)[0]

    weights = [p.detach().clone().requires_grad_() for p in network.parameters()]
    assert torch.autograd.gradcheck(value, weights)
    first = grad(lambda w: task_loss(network, first_order=True)(w, *one)[0])(dict(zip(names, weights, strict=True)))
    second = grad(lambda w: task_loss(network)(w, *one)[0])(dict(zip(names, weights, strict=True)))
    assert (first["head.weight"] - second["head.weight"]).abs().max() > 1e-3


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_answers_come_without_a_graph_and_in_chunks_of_any_size(network, tasks, mode, monkeypatch):
    weights = dict(network.named_parameters())
    answers = []
    for images in (10_000, 1):
        monkeypatch.setattr(adapt, "IMAGES_AT_ONCE", images)
        with mode():
            answers.append(adapt.over_tasks(task_loss(network), weights, tasks, 10)[0])
    torch.testing.assert_close(*answers)
    expected = torch.stack([task_loss(network)(weights, *task)[0] for task in zip(*tasks, strict=True)])
    torch.testing.assert_close(answers[0], expected.detach())
    assert not answers[0].requires_grad


def test_queries_alone_with_the_support_set_or_all_together(network, tasks):
    support, _, query, _ = (part[0] for part in tasks)
    alone = adapt.query_logits(network, support, query, together=False)
    loop = torch.stack([network(torch.cat([support, q[None]]))[-1] for q in query])
    torch.testing.assert_close(alone, loop)
    torch.testing.assert_close(adapt.query_logits(network, support, query[:1], together=False), alone[:1])
    torch.testing.assert_close(adapt.query_logits(network, support, query, together=True), network(query))


def test_a_given_gradient_reaches_an_optimiser():
    first, second, frozen = (torch.randn(3, requires_grad=need) for need in (True, True, False))
    weights, gradients = {"a": first, "b": second, "c": frozen}, {n: torch.randn(3) for n in "abc"}
    value = torch.tensor(2.5)
    total = adapt.with_gradient(value, weights, gradients)
    assert total.item() == 2.5
    total.backward()
    assert torch.equal(first.grad, gradients["a"]) and torch.equal(second.grad, gradients["b"]) and frozen.grad is None


def test_memory_does_not_grow_from_task_to_task(network, tasks):
    def live() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    weights = dict(network.named_parameters())
    counts = []
    for _ in range(4):
        adapt.meta_loss(task_loss(network), weights, tasks)[0].backward()
        adapt.over_tasks(task_loss(network), weights, tasks, 1)
        counts.append(live())
    assert counts[1] == counts[2] == counts[3]


def test_the_step_that_broke_is_counted():
    nan = float("nan")
    losses = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, nan, 4.0]])
    assert adapt.finite_steps(losses) == 2 and adapt.finite_steps(losses[:1]) == 4


def test_a_head_has_as_many_rows_as_it_was_given():
    backbone = nn.Module()
    backbone.out_shape = (4, 5, 5)
    head = adapt.linear_head(backbone, 5)
    assert head.weight.shape == (5, 100) and not head.bias.any()
    assert head.weight.abs().max() <= (6 / 105) ** 0.5
    with pytest.raises(EngramError, match=r"n_way = 5 but a task has 6 classes: train with n_way = 6"):
        adapt.check_ways(6, head)


def test_a_network_is_its_encoder_and_head_with_the_weights_given():
    torch.manual_seed(0)
    backbone, head = nn.Conv2d(1, 2, 3), nn.Linear(8, 5)
    images, weights = torch.randn(3, 1, 4, 4), {"backbone.bias": torch.ones(2), "head.bias": torch.zeros(5)}
    found = adapt.network(backbone, head, 4)(weights, images)
    maps = F.conv2d(images, backbone.weight, torch.ones(2))
    torch.testing.assert_close(found, F.linear(maps.flatten(1), head.weight)[:, :4])
    assert backbone.bias.abs().max() < 1, "nothing is changed in place"
    with pytest.raises(EngramError, match="a task has 6 classes"):
        adapt.network(backbone, head, 6)


def test_on_a_cpu_small_tasks_go_side_by_side_and_large_ones_one_by_one() -> None:
    assert adapt.chunk_of(torch.zeros(4, 80, 1, 28, 28), 4) == 4
    assert adapt.chunk_of(torch.zeros(4, 5, 3, 84, 84), 4) == 1


def test_what_is_asked_for_side_by_side_is_kept_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[int | None] = []

    def watched(function, axes, chunk):
        chunks.append(chunk)
        return spread(function, axes, chunk)

    spread = adapt.spread
    monkeypatch.setattr(adapt, "spread", watched)
    monkeypatch.setattr(adapt, "SMALL_TASK", 1)  # so that these tasks count as large
    weights, images = {"w": torch.ones(3, requires_grad=True)}, torch.randn(4, 2, 3)
    losses = []
    for at_once in (0, 3):
        loss, _ = adapt.meta_loss(lambda w, x: ((x @ w["w"]).square().mean(), x.sum()), weights, (images,), at_once)
        losses.append(loss.item())
    assert chunks == [1, 3] and losses[0] == pytest.approx(losses[1])


@pytest.mark.parametrize("gain", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_in_turn_and_side_by_side_are_the_same_in_both_orders(gain, together, monkeypatch, tasks):
    """The library's BatchNorm in a loop against the one spelt out, under vmap: gradients through a step, answers."""
    torch.manual_seed(2)
    backbone = nn.Sequential(nn.Conv2d(1, 2, 3), TaskNorm(2, gain), nn.Tanh()).double()
    head = nn.Linear(32, WAYS).double()
    network = adapt.network(backbone, head, WAYS)
    weights = {f"backbone.{k}": v for k, v in backbone.named_parameters()}
    weights |= {f"head.{k}": v for k, v in head.named_parameters()}

    def adapted(weights, support, labels):
        return adapt.descend(lambda w: F.cross_entropy(network(w, support), labels), weights, [0.3, 0.1])

    found = []
    for small in (10**9, 0):
        monkeypatch.setattr(adapt, "SMALL_TASK", small)
        support, labels, query, query_labels = tasks
        loss, _ = adapt.query_loss(adapted, network, weights, (support, labels, query, query_labels))
        answered, losses = adapt.answers(adapted, network, weights, (support, labels, query), together)
        found.append((loss, *torch.autograd.grad(loss, list(weights.values())), answered, losses))
    torch.testing.assert_close(*found)
    assert found[0][1].abs().max() > 1e-3


def test_no_layer_touches_the_card_of_a_method():
    folder = Path(adapt.__file__).parent
    assert not [p.name for p in folder.rglob("*.py") if re.search(r"\b(card|Method)\b", p.read_text())]
