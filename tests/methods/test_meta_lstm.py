"""Meta-learner LSTM: sizes, gates that make it gradient descent, preprocessing, and where statistics come from."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from learner_tasks import WAYS, episode
from torch import nn
from torch.func import functional_call

from engram.errors import EngramError
from engram.methods.meta_lstm import MetaLstm, MetaLstmConfig, Optimiser, preprocessed
from engram.nn import adapt
from engram.nn.backbones import ConvBlocks
from engram.types import TrainBatch

UPDATES = 3


def build(**changes):
    torch.manual_seed(0)
    settings = {"n_way": WAYS, "updates": UPDATES, "hidden": 5, **changes}
    return MetaLstm(ConvBlocks((1, 16, 16), width=4), MetaLstmConfig(**settings)).double()


def fixed_gates(method, forget, step):
    """Gates that see nothing."""
    with torch.no_grad():
        for gate, value in ((method.optimiser.forget, forget), (method.optimiser.input, step)):
            gate.weight.zero_()
            gate.bias.fill_(math.log(value / (1 - value)))
    return method


def by_gradient_descent(method, given, task, forget, step):
    """The learner of one task as plain SGD with shrinkage, and the statistics a BatchNorm2d would have gathered."""
    weights = {n: p.detach().clone() for n, p in method.learner().items()}
    for _ in range(UPDATES):
        weights = {n: w.requires_grad_() for n, w in weights.items()}
        loss = F.cross_entropy(functional_call(method, weights, (given.support[task],)), given.support_labels[task])
        gradients = torch.autograd.grad(loss, list(weights.values()))
        weights = {
            n: forget * w.detach() - step * g / given.support.shape[1]
            for (n, w), g in zip(weights.items(), gradients, strict=True)
        }
    return weights


def test_parameter_counts():
    method = MetaLstm(ConvBlocks((3, 84, 84), width=32), MetaLstmConfig())
    learner = sum(p.numel() for p in method.learner().values())
    assert learner == 32_901
    assert sum(p.numel() for p in method.parameters()) - learner == 4 * 20 * (4 + 20 + 2) + 2 * 23


def test_gates_start_near_one_and_near_a_small_step():
    optimiser = Optimiser(20)
    assert 0.982 <= optimiser.forget.bias.sigmoid() <= 0.9934 and 0.0066 <= optimiser.input.bias.sigmoid() <= 0.018
    assert max(p.abs().max() for n, p in optimiser.named_parameters() if not n.endswith(("t.bias",))) <= 0.01


def test_fixed_gates_are_gradient_descent_and_the_first_cell_gets_its_share():
    forget, step = 0.9, 2.0 / 3
    method, (given, answers) = fixed_gates(build(), forget, step), episode(dtype=torch.float64)
    cells, _, losses = method.learned(given.support, given.support_labels, WAYS)
    for task in range(2):
        expected = adapt.flat(by_gradient_descent(method, given, task, forget, step))
        torch.testing.assert_close(cells[task], expected, atol=1e-10, rtol=0)
    assert losses.shape == (2, UPDATES) and not losses.requires_grad
    method.loss(TrainBatch((given,), (answers,))).total.backward()
    total = torch.zeros_like(cells[0])
    for task in range(2):  # dL/dc_0 = forget^m dL/dc_m
        last = cells[task].detach().requires_grad_()
        loss = F.cross_entropy(method.logits(last, given.query[task], WAYS)[0], answers.query_labels[task]) / 2
        total += forget**UPDATES * torch.autograd.grad(loss, last)[0]
    found = adapt.flat({n: p.grad for n, p in method.learner().items()})
    torch.testing.assert_close(found, total, atol=1e-10, rtol=0)


def test_the_cell_against_plain_loops():
    torch.manual_seed(0)
    optimiser, rows = Optimiser(3).double(), 4
    cell, gradient, loss = torch.randn(1, rows).double(), torch.randn(1, rows).double() * 1e-4, torch.ones(1).double()
    with torch.no_grad():
        for p in optimiser.parameters():
            p.normal_()
        found, state = optimiser(cell, gradient, loss, optimiser.start(cell))
        again, _ = optimiser(found, gradient, loss, state)
        for index in range(rows):
            c, h, m, a, i = cell[0, index], torch.zeros(3).double(), torch.zeros(3).double(), 0.0, 0.0
            for expected in (found, again):
                x = torch.cat([preprocessed(gradient[0, index]), preprocessed(loss[0])])
                ingate, keep, new, out = (
                    optimiser.lstm.weight_ih @ x + optimiser.lstm.bias_ih
                    + optimiser.lstm.weight_hh @ h + optimiser.lstm.bias_hh
                ).chunk(4)  # fmt: skip
                m = keep.sigmoid() * m + ingate.sigmoid() * new.tanh()
                h = out.sigmoid() * m.tanh()
                a = optimiser.forget(torch.cat([h, torch.stack([c, torch.as_tensor(a).double().squeeze()])]))
                i = optimiser.input(torch.cat([h, torch.stack([c, torch.as_tensor(i).double().squeeze()])]))
                c = (a.sigmoid() * c - i.sigmoid() * gradient[0, index]).squeeze()
                torch.testing.assert_close(expected[0, index], c)


def test_the_optimiser_treats_all_weights_alike():
    optimiser = Optimiser(4).double()
    cell, gradient, loss = torch.randn(2, 6).double(), torch.randn(2, 6).double(), torch.rand(2).double()
    order = torch.randperm(6)
    plain, _ = optimiser(cell, gradient, loss, optimiser.start(cell))
    turned, _ = optimiser(cell[:, order], gradient[:, order], loss, optimiser.start(cell))
    torch.testing.assert_close(turned, plain[:, order])


def test_preprocessing_joins_where_its_halves_meet():
    edge = math.exp(-10)
    found = preprocessed(torch.tensor([edge, -edge, 1.0, -math.e, 0.0, edge / 2], dtype=torch.float64))
    expected = torch.tensor([[-1, 1], [-1, -1], [0, 1], [0.1, -1], [-1, 0], [-1, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def test_queries_are_normalised_as_by_running_averages_of_the_support_updates():
    forget, step = 0.9, 2.0 / 3
    method, given = fixed_gates(build(momentum=0.7), forget, step), episode(dtype=torch.float64)[0]
    found = method.predict(given).log_probs
    for task in range(2):
        plain = nn.Sequential(ConvBlocks((1, 16, 16), width=4), nn.Linear(4, WAYS)).double()
        for norm in (m for m in plain.modules() if isinstance(m, nn.BatchNorm2d)):
            norm.eps, norm.momentum = 1e-3, 0.7
        with torch.no_grad():
            for own, p in zip(plain.parameters(), method.learner().values(), strict=True):
                own.copy_(p)
        for _ in range(UPDATES):
            loss = F.cross_entropy(plain.train()(given.support[task]), given.support_labels[task])
            gradients = torch.autograd.grad(loss, list(plain.parameters()))
            with torch.no_grad():
                for p, g in zip(plain.parameters(), gradients, strict=True):
                    p.copy_(forget * p - step * g / 6)
        expected = plain.eval()(given.query[task]).log_softmax(-1).detach()
        torch.testing.assert_close(found[task], expected, atol=1e-10, rtol=0)


def test_no_query_sees_another_and_nothing_is_left_in_the_norms():
    method, given = build(), episode(dtype=torch.float64)[0]
    changed = replace(given, query=torch.cat([given.query[:, :1], given.query[:, 1:] * 3 + 1], 1))
    first, second = (method.predict(e).log_probs[:, 0] for e in (given, changed))
    torch.testing.assert_close(first, second, atol=1e-12, rtol=0)
    assert not method.card.transductive and method.card.batch_norm == "support"
    assert all(m.seen is None and m.given is None for m in method.modules() if hasattr(m, "seen"))


@pytest.mark.parametrize(("key", "value"), [("n_way", 1), ("updates", 0), ("hidden", 0), ("momentum", 0.0)])
def test_bad_settings_are_named(key, value):
    with pytest.raises(EngramError, match=rf"\[method\] {key} = {value} but"):
        build(**{key: value})


def test_tasks_in_turn_and_side_by_side_are_the_same(monkeypatch):
    """Statistics are taken and given in both; in turn they are the library's."""
    given, answers = episode(dtype=torch.float64)
    found = []
    for small in (10**9, 0):
        monkeypatch.setattr(adapt, "SMALL_TASK", small)
        method = build()
        loss = method.loss(TrainBatch((given,), (answers,))).total
        loss.backward()
        gradients = [p.grad for p in method.parameters()]
        found.append((loss.detach(), *gradients, method.eval().predict(given).log_probs))
    torch.testing.assert_close(*found)
