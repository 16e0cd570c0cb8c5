"""EGNN: the invariants of the method and the sizes of its networks."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from random_tasks import random_task

from engram.errors import EngramError
from engram.methods.egnn import Egnn, EgnnConfig
from engram.nn.backbones import Conv4, Flatten
from engram.types import TrainBatch

FEATURES, WAYS, QUERIES = 6, 3, 4


episode = partial(random_task, (FEATURES,))


def batch(steps: int = 2) -> TrainBatch:
    episodes, answers = zip(*(episode() for _ in range(steps)), strict=True)
    return TrainBatch(episodes, answers)


def build(**changes) -> Egnn:
    torch.manual_seed(0)
    method = Egnn(Flatten((FEATURES,)), EgnnConfig(**{"n_layers": 2, "width": 8, **changes}))
    with torch.no_grad():  # weights and running statistics that let answers differ by more than rounding
        for parameter in method.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=2 * parameter.shape[1] ** -0.5)
        for _ in range(20):
            method.loss(batch())
    return method.eval()


@pytest.mark.parametrize(("n_layers", "expected"), [(1, 1_460_129), (2, 1_618_626), (3, 1_777_123)])
def test_parameter_counts(n_layers, expected):
    method = Egnn(Conv4((3, 84, 84)), EgnnConfig(n_layers=n_layers))
    assert sum(p.numel() for p in method.parameters()) == expected


def test_a_map_is_refused_at_construction():
    backbone = Flatten((FEATURES,))
    backbone.out_shape = (64, 19, 19)
    with pytest.raises(EngramError, match="egnn takes one vector per image but the backbone gives a map of 64x19x19"):
        Egnn(backbone, EgnnConfig())


def test_the_whole_network_matches_loops():
    method, given = build(), episode(n_tasks=1)[0]
    nodes = torch.cat([given.support[0], given.query[0]]).double().numpy()
    labels = [*given.support_labels[0].tolist(), *([-1] * QUERIES)]
    size = len(nodes)
    similar = np.full((size, size), 0.5)
    for i, j in product(range(size), repeat=2):
        if min(labels[i], labels[j]) >= 0:
            similar[i, j] = labels[i] == labels[j]
    edges = np.stack([similar, 1 - similar])
    for layer in method.layers:
        gathered = []
        for i in range(size):
            parts = [nodes[i]]
            for c in range(2):
                mass = sum(edges[c, i, j] for j in range(size) if j != i)
                parts.append(sum(edges[c, i, j] * nodes[j] for j in range(size) if j != i) / mass)
            gathered.append(np.concatenate(parts))
        with torch.no_grad():
            nodes = layer.node_net(torch.tensor(np.stack(gathered), dtype=torch.float32)[None])[0].double().numpy()
            pairs = torch.tensor(np.abs(nodes[:, None] - nodes[None]), dtype=torch.float32)
            score = torch.sigmoid(layer.edge_net(pairs[None])[0, ..., 0]).double().numpy()
        updated = np.zeros_like(edges)
        for (c, value), i in product(enumerate((score, 1 - score)), range(size)):
            others = [j for j in range(size) if j != i]
            mass, total = (sum(w[i, j] * edges[c, i, j] for j in others) for w in (np.ones_like(value), value))
            for j in others:
                updated[c, i, j] = mass * value[i, j] * edges[c, i, j] / total
            updated[c, i, i] = 1 - c
        edges = (updated + 1e-6) / (updated + 1e-6).sum(0)
    with torch.no_grad():
        found = method.predict(given)
    np.testing.assert_allclose(found.details["edges"][0, -1], edges[0], atol=1e-5)
    votes = np.array([[edges[0, q, [j for j in range(WAYS * 2) if labels[j] == c]].sum() for c in range(WAYS)]
                      for q in range(WAYS * 2, size)])  # fmt: skip
    np.testing.assert_allclose(found.log_probs[0].exp(), votes / votes.sum(1, keepdims=True), atol=1e-4)


@pytest.mark.parametrize("transductive", [True, False])
def test_order_of_nodes_and_names_of_classes_do_not_matter(transductive):
    method, given = build(transductive=transductive), episode()[0]
    supports, queries, names = torch.randperm(WAYS * 2), torch.randperm(QUERIES), torch.tensor([2, 0, 1])
    labels = names[given.support_labels[:, supports]]
    changed = replace(given, support=given.support[:, supports], support_labels=labels, query=given.query[:, queries])
    with torch.no_grad():
        plain, other = method.predict(given), method.predict(changed)
    torch.testing.assert_close(other.log_probs[..., names], plain.log_probs[:, queries], atol=1e-5, rtol=0)
    order = torch.cat([supports, WAYS * 2 + queries])
    permuted = plain.details["edges"][..., order, :][..., order]
    torch.testing.assert_close(other.details["edges"], permuted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("transductive", [True, False])
def test_queries_depend_on_each_other_only_where_transductive(transductive):
    method, given = build(transductive=transductive), episode()[0]
    changed = replace(given, query=torch.cat([given.query[:, :1], torch.randn(2, QUERIES - 1, FEATURES)], 1))
    with torch.no_grad():
        gap = (method.predict(given).log_probs[:, 0] - method.predict(changed).log_probs[:, 0]).abs().max()
    assert (gap > 1e-4) == transductive == method.card.transductive


def test_an_inductive_query_is_a_task_of_its_own():
    method, given = build(transductive=False), episode()[0]
    with torch.no_grad():
        whole = method.predict(given).log_probs
        alone = method.predict(replace(given, query=given.query[:, 2:3])).log_probs
    torch.testing.assert_close(alone[:, 0], whole[:, 2], atol=1e-6, rtol=0)


def test_another_number_of_ways_runs_with_the_same_weights():
    prediction = build().predict(episode(ways=7)[0])
    assert prediction.log_probs.shape == (2, QUERIES, 7)
    torch.testing.assert_close(prediction.log_probs.exp().sum(-1), torch.ones(2, QUERIES))


def test_one_layer_has_no_dropout_and_two_have_it_in_the_first():
    for n_layers, random in ((1, False), (2, True)):
        method = build(n_layers=n_layers, dropout=0.5)
        given = episode()[0]
        method.train()
        assert torch.equal(method.predict(given).log_probs, method.predict(given).log_probs) != random


@pytest.mark.parametrize("transductive", [True, False])
def test_a_sequence_is_its_steps(transductive):
    method, episodes = build(transductive=transductive), [episode()[0] for _ in range(3)]
    episodes.append(episode(shots=1)[0])
    with torch.no_grad():
        for step, whole in zip(episodes, method.predict_sequence(episodes), strict=True):
            torch.testing.assert_close(method.predict(step).log_probs, whole.log_probs, atol=1e-6, rtol=0)


def test_unlabelled_supports_stay_in_the_graph_without_a_vote():
    method, given = build(), episode()[0]
    labels = torch.where(torch.arange(WAYS * 2) < WAYS + 1, given.support_labels, -1)
    semi = replace(given, support_labels=labels)
    order = torch.cat([torch.arange(WAYS + 1), WAYS + 1 + torch.randperm(WAYS - 1)])
    with torch.no_grad():
        found = method.predict(semi).log_probs
        permuted = method.predict(replace(semi, support=semi.support[:, order])).log_probs
        dropped = replace(given, support=given.support[:, : WAYS + 1], support_labels=labels[:, : WAYS + 1])
        gap = (method.predict(dropped).log_probs - found).abs().max()
    torch.testing.assert_close(found, permuted, atol=1e-5, rtol=0)
    assert gap > 1e-4


def test_hidden_labels_move_the_vote_of_all_and_no_other():
    given = episode()[0]
    semi = replace(
        given,
        support_labels=torch.where(torch.arange(WAYS * 2) < WAYS + 1, given.support_labels, -1),
        hidden_labels=given.support_labels,
    )
    others = replace(semi, hidden_labels=torch.where(semi.support_labels < 0, (given.support_labels + 1) % WAYS, 0))
    with torch.no_grad():
        fair, all_vote = build(), build(vote="all")
        assert torch.equal(fair.predict(semi).log_probs, fair.predict(others).log_probs)
        assert not torch.allclose(all_vote.predict(semi).log_probs, all_vote.predict(others).log_probs)
        assert torch.equal(all_vote.predict(given).log_probs, fair.predict(given).log_probs)  # nothing is hidden here
        with pytest.raises(EngramError, match="hidden_labels_shown = true in .test., or vote = 'labelled'"):
            all_vote.predict(replace(semi, hidden_labels=None))


@pytest.mark.parametrize("transductive", [True, False])
def test_the_loss_in_plain_loops(transductive):
    method, given = build(transductive=transductive), batch(steps=1)
    labels = torch.cat([given.episodes[0].support_labels, given.answers[0].query_labels], 1)
    with torch.no_grad():
        edges = method.predict(given.episodes[0]).details["edges"].double()
        terms = method.loss(given)  # in evaluation mode: the same edges
    expected, n_support, size = 0.0, WAYS * 2, labels.shape[1]
    for k in range(2):
        losses: dict[bool, list[float]] = {True: [], False: []}
        for b, i, j in product(range(2), range(size), range(size)):
            ends = (i >= n_support) + (j >= n_support)
            if ends == 1 or (ends == 2 and transductive):
                same, p = bool(labels[b, i] == labels[b, j]), edges[b, k, i, j].item()
                losses[same].append(-np.log(p if same else 1 - p))
        expected += (0.5, 1.0)[k] / 2 * (np.mean(losses[True]) + np.mean(losses[False]))
    assert terms.total.item() == pytest.approx(expected, rel=1e-4)
    assert set(terms.terms) == {"edge", "accuracy", "edge_accuracy"}
    method.train().loss(given).total.backward()
    assert all(p.grad is not None for p in method.parameters())


def test_slot_by_slot_batch_norm_sees_one_image_of_every_task_in_training_alone():
    def norm_of(calls: str) -> tuple[Egnn, torch.nn.BatchNorm1d]:
        torch.manual_seed(0)
        backbone = Flatten((FEATURES,))
        norm = torch.nn.BatchNorm1d(FEATURES)
        backbone.forward = lambda images: norm(images.flatten(1))
        backbone.norm = norm
        return Egnn(backbone, EgnnConfig(n_layers=1, width=8, encoder_calls=calls)), norm

    given = batch(steps=1)
    losses = {}
    for calls in ("one", "slot"):
        method, norm = norm_of(calls)
        losses[calls] = method.loss(given).total
        images = given.episodes[0].support.shape[1] + given.episodes[0].query.shape[1]
        assert norm.num_batches_tracked == (1 if calls == "one" else images)
        method.eval().predict(given.episodes[0])
        assert norm.num_batches_tracked == (1 if calls == "one" else images)
    assert abs(losses["one"] - losses["slot"]) > 1e-3
    with torch.no_grad():  # the same weights answer alike, however they were trained
        answers = []
        for calls in ("one", "slot"):
            answers.append(norm_of(calls)[0].eval().predict(given.episodes[0]).log_probs)
    torch.testing.assert_close(*answers)
