"""Evidence from the past, against loops that look at one entry at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from slow_evidence import slow
from torch import Tensor

from engram.nn.evidence import EvidenceGraph, Reading, Task, gather_by_name
from engram.nn.evidence import join_by_content as join
from engram.nn.memory_bank import Bank, empty, visible

N_WAY, N_SHOT, N_QUERY, BATCH, INPUTS, WIDTH = 3, 2, 4, 2, 6, 5


def random_bank(n_steps: int = 4, per_step: int = 3, seed: int = 0) -> Bank:
    generator = torch.Generator().manual_seed(seed)
    size = (BATCH, n_steps * per_step)
    return Bank(
        torch.nn.functional.normalize(torch.randn(*size, WIDTH, generator=generator), dim=-1),
        torch.rand(size, generator=generator) + 0.5,
        torch.randint(0, 4, size, generator=generator),
        torch.randint(0, 2, size, generator=generator),
        torch.arange(n_steps).repeat_interleave(per_step).expand(size),
    )


def random_task(steps: int = 4, named: bool = True, seed: int = 0, pool: int = 5) -> Task:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(N_WAY).repeat(N_SHOT)
    labels = torch.stack([labels[torch.randperm(len(labels), generator=generator)] for _ in range(steps * BATCH)])
    names = torch.stack([torch.randperm(pool, generator=generator)[:N_WAY] for _ in range(steps * BATCH)])
    return Task(
        torch.randn(steps, BATCH, N_WAY * N_SHOT, INPUTS, generator=generator),
        labels.unflatten(0, (steps, BATCH)),
        torch.randn(steps, BATCH, N_QUERY, INPUTS, generator=generator),
        names.unflatten(0, (steps, BATCH)) if named else None,
        N_WAY,
    )


def graph(n_layers: int = 2, transductive: bool = True, reading: Reading | None = None) -> EvidenceGraph:
    torch.manual_seed(0)
    made = EvidenceGraph(INPUTS, WIDTH, n_layers, transductive, reading or Reading())
    with torch.no_grad():
        made.centre.normal_(0, 0.3)
        made.log_variance.fill_(0.7)
        made.bias.fill_(-3.0)
    return made.double().float()


def nothing() -> Bank:
    return empty(BATCH, WIDTH, "cpu")


def test_gather_by_name_equals_a_loop() -> None:
    bank, now = random_bank(), torch.tensor([1, 3, 4])[:, None].expand(3, BATCH)
    names = torch.stack([torch.randperm(4)[:N_WAY] for _ in range(3 * BATCH)]).view(3, BATCH, N_WAY)
    mask, worth = visible(bank.steps, now, 6), bank.weights * 0.3
    total, weight = gather_by_name(bank, names, mask, worth)
    for t, b, c in np.ndindex(3, BATCH, N_WAY):
        expected, count = np.zeros(WIDTH), 0.0
        for e in range(bank.names.shape[1]):
            if mask[t, b, e] and bank.names[b, e] == names[t, b, c]:
                expected += float(worth[b, e]) * bank.features[b, e].numpy()
                count += float(worth[b, e])
        assert np.allclose(total[t, b, c].numpy(), expected, atol=1e-6)
        assert float(weight[t, b, c]) == pytest.approx(count, abs=1e-6)
    assert weight.max() > 0 and weight.min() == 0


def test_join_by_content_equals_a_loop() -> None:
    bank, now, refusal = random_bank(), torch.tensor([1, 3])[:, None].expand(2, BATCH), 1.2
    mask = visible(bank.steps, now, 6)
    logits = 3 * torch.randn(2, BATCH, N_WAY, 12, generator=torch.Generator().manual_seed(1))
    total, weight = join(bank, mask, logits, torch.tensor(refusal).expand(2, BATCH, 1, 1))
    expected, count = np.zeros((2, BATCH, N_WAY, WIDTH)), np.zeros((2, BATCH, N_WAY))
    for t, b, e in np.ndindex(2, BATCH, 12):
        if mask[t, b, e]:
            choice = np.exp([*logits[t, b, :, e].numpy(), refusal])
            share = choice[:-1] / choice.sum()
            for c in range(N_WAY):
                expected[t, b, c] += share[c] * bank.features[b, e].numpy()
                count[t, b, c] += share[c]
    assert np.allclose(total.numpy(), expected, atol=1e-5) and np.allclose(weight.numpy(), count, atol=1e-5)


@pytest.mark.parametrize("capacity", [1000, 20])
@pytest.mark.parametrize("transductive", [True, False])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("named", "node"), [(True, 0.0), (False, 0.0), (False, 0.8)])
@torch.no_grad()
def test_all_steps_at_once_equal_one_picture_at_a_time(
    named: bool, node: float, together: bool, transductive: bool, capacity: int
) -> None:
    """Readings far from the defaults, so that each of them shows."""
    reading = Reading(3.0, query=0.6, past_query=0.4, past_picture=0.7, refusal=0.2, crowd=0.4, node=node)
    reading = replace(reading, together=together, node=0.0 if together else node)
    model, task = graph(2, transductive, reading), random_task(5, named)
    answer = model(task, nothing(), capacity)
    for b in range(BATCH):
        for t, (mean, evidence) in enumerate(slow(model, task, b, capacity)):
            assert np.allclose(answer.mean[t, b].numpy(), mean, atol=1e-4), (b, t)
            assert np.allclose(answer.evidence[t, b].numpy(), evidence, atol=1e-5), (b, t)
    assert answer.evidence[1:].std() > 0.05  # the past has been read


@pytest.mark.parametrize("named", [True, False])
@torch.no_grad()
def test_variance_is_the_noise_over_the_evidence(named: bool) -> None:
    model, task = graph(), random_task(6, named)
    answer = model(task, nothing(), 1000)
    expected = (model.log_variance.exp() / answer.evidence)[:, :, None, :].expand(-1, -1, N_QUERY, -1)
    assert torch.equal(answer.variance, expected)
    assert torch.allclose(answer.evidence[0], torch.tensor(float(N_SHOT)))
    assert torch.allclose(answer.variance[0], model.log_variance.exp() / N_SHOT)


@torch.no_grad()
def test_a_name_met_again_adds_its_supports_and_a_new_one_nothing() -> None:
    """The same classes in every task, but the last class is new each time: evidence is counted exactly."""
    task = random_task(4)
    names = torch.tensor([[0, 1, 10], [0, 1, 11], [0, 1, 12], [0, 1, 13]])[:, None].expand(-1, BATCH, -1)
    for past_query in (0.0, 0.5):
        answer = graph(reading=Reading(past_query=past_query))(task._replace(names=names), nothing(), 1000)
        assert torch.allclose(answer.evidence[:, :, 2], torch.tensor(float(N_SHOT)))
        if past_query == 0:
            expected = torch.tensor([1.0, 2.0, 3.0, 4.0])[:, None, None] * N_SHOT
            assert torch.allclose(answer.evidence[:, :, :2], expected.expand(-1, BATCH, 2))
        assert (answer.variance[1:, :, :, :2] < answer.variance[:-1, :, :, :2]).all()
        assert torch.allclose(answer.variance[1:, ..., 2], answer.variance[:1, ..., 2])


@torch.no_grad()
def test_past_queries_count_once_each_at_their_weight() -> None:
    """All names recur: the shares of a query add up to 1, so a task adds past_query * Q over its classes."""
    task, reading = random_task(3), Reading(past_query=0.25)
    names = torch.arange(N_WAY).expand(3, BATCH, N_WAY)
    answer = graph(reading=reading)(task._replace(names=names), nothing(), 1000)
    for t in range(3):
        expected = N_WAY * N_SHOT * (t + 1) + reading.past_query * N_QUERY * t
        assert torch.allclose(answer.evidence[t].sum(-1), torch.tensor(expected))


def towards(*places: int) -> Tensor:
    """Unit pictures along axes: (len(places), INPUTS)."""
    return torch.eye(INPUTS)[list(places)]


@pytest.mark.parametrize(("past", "least", "most"), [(0, 0.9, 1.01), (5, 0.0, 0.01)])
@torch.no_grad()
def test_a_past_picture_joins_a_class_it_looks_like_and_no_other(past: int, least: float, most: float) -> None:
    """Classes along axes 0, 1, 2. The past task's pictures lie along axis 0, or along axis 5, which is no class."""
    model = EvidenceGraph(INPUTS, INPUTS, 1, False, Reading(past_picture=1.0))
    with torch.no_grad():
        model.metric.weight.copy_(torch.eye(INPUTS))
    labels = torch.arange(3)[None, None].expand(2, 1, 3)
    support = torch.stack([towards(past, past, past), towards(0, 1, 2)])[:, None]
    query = torch.stack([towards(past), (towards(0) + towards(1)) / 2])[:, None]
    task = Task(support, labels, query, None, 3)
    answer = model(task, empty(1, INPUTS, "cpu"), 100)
    added = answer.evidence[1, 0] - 1  # one support a class, and four pictures in the past
    assert 4 * least <= float(added[0]) <= 4 * most
    assert added[1:].abs().max() < 0.05 * 4
    alone = model(Task(*(p[1:] for p in task[:3]), None, 3), empty(1, INPUTS, "cpu"), 100)
    moved = (answer.mean[1] - alone.mean[0]).abs().max()
    assert moved < 0.05 if past == 5 else added[0] > 3.5


@torch.no_grad()
def test_an_alike_picture_moves_its_class_and_a_strange_one_does_not() -> None:
    """The class is seen once, at 30 degrees from its centre: alike pictures of the past pull it there."""
    model = EvidenceGraph(INPUTS, INPUTS, 2, False, Reading(past_picture=1.0))
    model.metric.weight.copy_(torch.eye(INPUTS))
    off = (0.87 * towards(0) + 0.5 * towards(4))[0]
    now = torch.stack([off, *towards(1, 2)])
    answers = {}
    for name, past in {"alike": towards(0, 0, 0), "strange": -towards(0, 0, 0)}.items():
        support = torch.stack([past, now])[:, None]
        query = torch.stack([past[:1], towards(0)])[:, None]
        task = Task(support, torch.arange(3).expand(2, 1, 3), query, None, 3)
        answers[name] = model(task, empty(1, INPUTS, "cpu"), 100).mean[1, 0, 0, 0]
    alone = model.log_scale.exp() * (off @ towards(0)[0]) / off.norm() + model.bias
    assert abs(answers["strange"] - alone) < 0.01
    assert answers["alike"] > alone + 0.5
