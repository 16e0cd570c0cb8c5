"""Partly labelled supports, for the graph methods that use them: GNN, EGNN, CML-BGNN."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from toy_store import make_store

from engram.data.episodes import episodes_at, frozen_tasks
from engram.methods.cml_bgnn import CmlBgnn, CmlBgnnConfig
from engram.methods.egnn import Egnn, EgnnConfig
from engram.methods.gnn import Gnn, GnnConfig
from engram.nn.backbones import Flatten
from engram.nn.encoder import Encoder
from engram.protocol import Protocol
from engram.types import Episode, Method, TrainBatch

SHAPE, WAYS = (1, 4, 4), 3
STORE = make_store(shape=SHAPE)
SEMI = Protocol("toy", "train", n_way=WAYS, n_shot=5, n_query=2, n_sequences=4, labelled_fraction=0.2)
METHODS: dict[str, Callable[[Encoder], Method]] = {
    "gnn": lambda e: Gnn(e, GnnConfig(n_way=WAYS, width=8)),
    "egnn": lambda e: Egnn(e, EgnnConfig(n_layers=2, width=8)),
    "egnn inductive": lambda e: Egnn(e, EgnnConfig(n_layers=2, width=8, transductive=False)),
    "cml_bgnn": lambda e: CmlBgnn(e, CmlBgnnConfig(n_layers=2, width=8, dropout=0.0)),
    "cml_bgnn public": lambda e: CmlBgnn(e, CmlBgnnConfig.preset("public", n_layers=2, width=8)),
}


def tasks(protocol: Protocol) -> TrainBatch:
    return TrainBatch(*episodes_at(STORE, frozen_tasks(STORE, protocol), WAYS))


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Method:
    """A few steps on partly labelled tasks: they run, and answers move by more than rounding."""
    torch.manual_seed(0)
    method = METHODS[request.param](Encoder(Flatten(SHAPE), (0.5,), (0.5,))).train()
    optimiser = torch.optim.Adam(method.parameters(), 2e-2)
    for _ in range(15):
        optimiser.zero_grad()
        method.loss(tasks(SEMI)).total.backward()
        optimiser.step()
    return method.eval()


@torch.no_grad()
def answer(method: Method, episode: Episode) -> torch.Tensor:
    return method.predict(episode).log_probs.exp()


def test_unlabelled_supports_matter_but_not_their_order(method: Method) -> None:
    episode = tasks(SEMI).episodes[0]
    hidden = (episode.support_labels < 0).nonzero()[:, 1].view(4, -1)
    rows = torch.arange(4)[:, None]
    support = episode.support.clone()
    support[rows, hidden] = episode.support[rows, hidden.roll(1, 1)]
    plain = answer(method, episode)
    torch.testing.assert_close(answer(method, replace(episode, support=support)), plain, atol=1e-4, rtol=0)
    support[rows, hidden] = 255 - support[rows, hidden]
    assert (answer(method, replace(episode, support=support)) - plain).abs().max() > 1e-4


def test_labelled_only_is_one_shot_on_the_labelled_supports(method: Method) -> None:
    semi = tasks(SEMI).episodes[0]
    kept = (semi.support_labels >= 0).nonzero()[:, 1].view(4, WAYS)
    rows = torch.arange(4)[:, None]
    gathered = replace(semi, support=semi.support[rows, kept], support_labels=semi.support_labels[rows, kept])
    dropped = tasks(replace(SEMI, drop_unlabelled=True)).episodes[0]
    assert dropped.support.shape[1] == WAYS
    same_queries = replace(dropped, query=semi.query)
    torch.testing.assert_close(answer(method, same_queries), answer(method, gathered), atol=1e-5, rtol=0)


def test_all_labelled_is_the_supervised_task(method: Method) -> None:
    plain, semi = (tasks(replace(SEMI, labelled_fraction=f, drop_unlabelled=f < 1)) for f in (1.0, 0.99))
    assert torch.equal(answer(method, plain.episodes[0]), answer(method, semi.episodes[0]))
    assert torch.equal(method.loss(plain).terms["accuracy"], method.loss(semi).terms["accuracy"])
