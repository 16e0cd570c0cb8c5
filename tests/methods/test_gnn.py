"""GNN: its sizes, the label kernel and one layer in plain loops, and what its answers may depend on."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from random_tasks import random_task

from engram.errors import EngramError
from engram.methods.gnn import Adjacency, Gnn, GnnConfig
from engram.nn.backbones import Conv4, Flatten
from engram.types import Episode, TrainBatch

FEATURES, WAYS, QUERIES = 6, 3, 4


episode = partial(random_task, (FEATURES,))


def build(**changes) -> Gnn:
    """In evaluation mode, with running statistics that belong to its weights."""
    torch.manual_seed(0)
    method = Gnn(Flatten((FEATURES,)), GnnConfig(**{"n_way": WAYS, "width": 8, **changes}))
    with torch.no_grad():
        for _ in range(20):
            given, answers = episode()
            method.loss(TrainBatch((given,), (answers,)))
    return method.eval()


def log_probs(method: Gnn, given: Episode) -> torch.Tensor:
    with torch.no_grad():
        return method.predict(given).log_probs


def test_parameter_counts():
    counts = [
        sum(p.numel() for p in Gnn(Conv4((3, 84, 84)), GnnConfig(n_layers=n)).parameters()) - 1_283_200
        for n in (1, 2, 3)
    ]
    assert counts[2] == 335_994
    assert counts[0] < counts[1] < counts[2]


def test_rows_of_an_adjacency_sum_to_one_and_nobody_listens_to_itself():
    adjacency = Adjacency(FEATURES, 8)(torch.randn(3, 5, FEATURES))
    torch.testing.assert_close(adjacency.sum(-1), torch.ones(3, 5))
    assert torch.equal(adjacency.diagonal(dim1=1, dim2=2), torch.zeros(3, 5))


@pytest.mark.parametrize("unknown", ["zeros", "uniform"])
def test_the_whole_network_matches_loops(unknown):
    """Label kernel, adjacency, convolution and answer, one graph per query, one pair at a time."""
    method, (given, _) = build(unknown_label=unknown, n_layers=2), episode(n_tasks=1)
    given = replace(given, support_labels=given.support_labels.index_fill(1, torch.tensor([4]), -1))
    labels, found = given.support_labels[0].tolist(), log_probs(method, given)[0]
    for q in range(QUERIES):
        nodes = []
        for features, label in zip([*given.support[0], given.query[0, q]], [*labels, -1], strict=True):
            blank = 1 / WAYS if unknown == "uniform" and label < 0 else 0.0
            nodes.append(np.array([*features.tolist(), *(float(label == c) or blank for c in range(WAYS))]))
        for layer in range(2):
            gathered = []
            for i, node in enumerate(nodes):
                others = [j for j in range(len(nodes)) if j != i]
                pairs = torch.tensor(np.stack([abs(node - nodes[j]) for j in others]), dtype=torch.float32)
                with torch.no_grad():
                    scores = method.adjacencies[layer].net(pairs[None])[0, :, 0].double().numpy()
                weights = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
                heard = sum(weight * nodes[j] for weight, j in zip(weights, others, strict=True))
                gathered.append(np.concatenate([node, heard]))
            rows = torch.tensor(np.stack(gathered), dtype=torch.float32)
            with torch.no_grad():
                if layer == 0:
                    added = method.convolutions[0](rows[None])[0].numpy()
                    nodes = [np.concatenate(pair) for pair in zip(nodes, added, strict=True)]
                else:
                    answer = method.out(rows[-1])
        torch.testing.assert_close(found[q], answer.log_softmax(-1), atol=1e-4, rtol=0)


def test_the_order_of_the_supports_does_not_matter_but_the_names_of_the_classes_do():
    method, (given, _) = build(), episode()
    order, names = torch.randperm(WAYS * 2), torch.tensor([2, 0, 1])
    permuted = replace(given, support=given.support[:, order], support_labels=given.support_labels[:, order])
    renamed = replace(given, support_labels=names[given.support_labels])
    plain = log_probs(method, given)
    torch.testing.assert_close(log_probs(method, permuted), plain, atol=1e-5, rtol=0)
    assert (log_probs(method, renamed)[..., names] - plain).abs().max() > 1e-3


def test_a_query_is_a_task_of_its_own():
    method, (given, _) = build(), episode()
    alone = Episode(given.support[1:], given.support_labels[1:], given.query[1:, 2:3], WAYS)
    torch.testing.assert_close(log_probs(method, alone)[0, 0], log_probs(method, given)[1, 2], atol=1e-6, rtol=0)


def test_unlabelled_supports_are_seen_without_their_label():
    method, (given, _) = build(), episode()
    hidden = replace(given, support_labels=torch.where(torch.arange(WAYS * 2) < WAYS + 1, given.support_labels, -1))
    order = torch.cat([torch.arange(WAYS + 1), WAYS + 1 + torch.randperm(WAYS - 1)])
    labelled = Episode(hidden.support[:, : WAYS + 1], hidden.support_labels[:, : WAYS + 1], hidden.query, WAYS)
    found = log_probs(method, hidden)
    torch.testing.assert_close(log_probs(method, replace(hidden, support=hidden.support[:, order])), found)
    assert (log_probs(method, labelled) - found).abs().max() > 1e-4
    assert (log_probs(method, given) - found).abs().max() > 1e-4


def test_what_it_cannot_take_is_told():
    method, (given, _) = build(), episode(ways=4)
    with pytest.raises(EngramError, match="built for 3 ways but the task has 4"):
        method.predict(given)
    backbone = Flatten((FEATURES,))
    backbone.out_shape = (64, 19, 19)
    with pytest.raises(EngramError, match="gnn takes one vector per image but the backbone gives a map of 64x19x19"):
        Gnn(backbone, GnnConfig())
    with pytest.raises(EngramError, match="n_layers = 0 but at least 1"):
        GnnConfig(n_layers=0)
