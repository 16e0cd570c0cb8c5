from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn
from toy_store import make_store

from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation import evaluate as module
from engram.evaluation.evaluate import edge_accuracy, evaluate, query_pairs
from engram.evaluation.metrics import pair_means
from engram.methods import METHODS
from engram.methods.egnn import EgnnConfig
from engram.nn.backbones import Flatten
from engram.processes import Share
from engram.protocol import Protocol
from engram.types import Answers, Episode, History, Method, MethodCard, Prediction

PROTOCOL = Protocol("toy", split="train", n_way=4, n_query=3, stream_length=3, n_sequences=12)


@dataclass(frozen=True)
class NoConfig:
    pass


class Counter(Method):
    """Answers with the number of tasks seen so far, to show that history is handed on and in order."""

    card = MethodCard(title="counter", paper="none", continual=True, trainable=False)
    Config = NoConfig

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        seen = history[0] if history else torch.zeros(len(episode.query))
        logits = torch.zeros(*episode.query.shape[:2], episode.n_way)
        logits[..., 0] = seen[:, None]
        return Prediction(logits.log_softmax(-1), (seen + 1,))


class Broken(Method):
    card = MethodCard(title="broken", paper="none", trainable=False)
    Config = NoConfig

    def __init__(self, kind: str) -> None:
        super().__init__(nn.Identity(), NoConfig())
        self.kind = kind

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        shape = (*episode.query.shape[:2], episode.n_way)
        if self.kind == "shape":
            return Prediction(torch.zeros(1, 2))
        return Prediction(torch.full(shape, float("nan")) if self.kind == "nan" else torch.zeros(shape))


def test_the_answer_does_not_depend_on_how_many_images_go_at_once(
    toy_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = METHODS["pixel_centroid"](nn.Identity(), None)
    whole = evaluate(method, toy_store, PROTOCOL)
    monkeypatch.setitem(module.MAX_IMAGES, "cpu", 20)
    pieces = evaluate(method, toy_store, PROTOCOL)
    assert np.allclose(whole.outcomes.probabilities, pieces.outcomes.probabilities, atol=1e-6)
    assert whole.tasks_digest == pieces.tasks_digest


def test_history_is_handed_on_through_pieces_of_a_stream(toy_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.MAX_IMAGES, "cpu", 32)
    result = evaluate(Counter(nn.Identity(), NoConfig()), toy_store, replace(PROTOCOL, stream_length=7))
    first_class = np.log(result.outcomes.probabilities[0, :, 0, 0] / result.outcomes.probabilities[0, :, 0, 1])
    assert np.allclose(first_class, np.arange(7), atol=1e-4)


def test_training_mode_is_restored(toy_store: Store) -> None:
    method = Counter(nn.Identity(), NoConfig()).train()
    evaluate(method, toy_store, PROTOCOL)
    assert method.training


def test_floors_score_as_they_must() -> None:
    store = make_store(noise=20.0, split="test")
    protocol = Protocol("toy", n_way=5, n_query=5, n_sequences=50)
    chance = evaluate(METHODS["chance"](nn.Identity(), None), store, protocol)
    assert chance.metrics["accuracy"] == pytest.approx(0.2) and chance.metrics["ece"] == pytest.approx(0, abs=1e-6)
    pixels = evaluate(METHODS["pixel_centroid"](nn.Identity(), None), store, protocol)
    assert pixels.metrics["accuracy"] > 0.95


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [("shape", r"shape \(1, 2\) where \(10, 12, 4\)"), ("nan", "not finite"), ("sum", "add up to 1")],
)
def test_answers_that_are_no_probabilities_are_refused(toy_store: Store, kind: str, sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        evaluate(Broken(kind), toy_store, PROTOCOL)


def test_edge_accuracy_counts_query_support_edges_of_labelled_supports() -> None:
    episode = Episode(torch.zeros(1, 3, 1), torch.tensor([[0, 1, -1]]), torch.zeros(1, 2, 1), 2)
    edges = torch.zeros(1, 2, 5, 5)
    edges[0, -1, 3, 0] = 0.9  # query 0 is of class 0: right on both labelled supports
    edges[0, -1, 4, 0] = 0.8  # query 1 is of class 1: wrong on both
    share = edge_accuracy(edges, episode, Answers(torch.tensor([[0, 1]]), torch.zeros(1, 2)))
    assert share.tolist() == [0.5]


def test_edges_of_two_queries_are_told_apart_by_their_classes() -> None:
    """Task 0 has two queries of class 0 and one of class 1; in task 1 no two share a class, so it has no such pair."""
    edges = torch.rand(2, 2, 5, 5)
    edges[0, -1, 2:, 2:] = torch.tensor([[1.0, 0.2, 0.6], [0.4, 1.0, 0.8], [0.6, 0.8, 1.0]])
    edges[1, -1, 2:, 2:] = 0.1
    found = query_pairs(edges, Answers(torch.tensor([[0, 0, 1], [2, 0, 1]]), torch.zeros(2, 3)))
    assert torch.allclose(found, torch.tensor([[0.3, 0.7], [torch.nan, 0.1]]), equal_nan=True)
    means = pair_means(found[:, None].numpy())
    assert means == {"same": pytest.approx(0.3), "different": pytest.approx(0.4)}
    assert pair_means(found[1:, None].numpy())["same"] is None


@pytest.mark.parametrize("transductive", [True, False])
def test_query_pairs_are_a_metric_where_queries_share_a_graph(toy_store: Store, transductive: bool) -> None:
    method = METHODS["egnn"](Flatten(toy_store.image_shape), EgnnConfig(1, 4, transductive))
    metrics = evaluate(method, toy_store, replace(PROTOCOL, n_sequences=2)).metrics
    assert bool(metrics["query_pairs"]) == transductive


class Drawing(Method):
    """Answers with random numbers, as its card says."""

    card = MethodCard(title="drawing", paper="none", stochastic=True, batch_norm="none", trainable=False)
    Config = NoConfig

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        return Prediction(torch.randn(*episode.query.shape[:2], episode.n_way).log_softmax(-1))


def test_samples_are_seeded_and_the_global_random_state_is_left_alone(toy_store: Store) -> None:
    method = Drawing(nn.Identity(), NoConfig())
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = evaluate(method, toy_store, PROTOCOL)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(6)
    again, other = evaluate(method, toy_store, PROTOCOL), evaluate(method, toy_store, PROTOCOL, seed_samples=1)
    assert np.array_equal(again.outcomes.probabilities, first.outcomes.probabilities)
    assert not np.array_equal(other.outcomes.probabilities, first.outcomes.probabilities)
    share = evaluate(method, toy_store, PROTOCOL, share=Share(1, 2))  # with half of the tasks its samples were others
    assert np.array_equal(share.outcomes.probabilities, first.outcomes.probabilities)
