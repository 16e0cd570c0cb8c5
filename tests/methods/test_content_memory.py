"""Content memory as a method: card, settings, loss. Its memory is tested with `engram.nn.content_graph`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engram.errors import EngramError
from engram.methods.content_memory import ContentMemory, ContentMemoryConfig
from engram.types import Answers, Episode, TrainBatch

WAYS, SHOTS, QUERIES, BATCH, FEATURES = 3, 2, 4, 2, 6


class Features(torch.nn.Identity):
    out_shape = (FEATURES,)


def build(**settings: Any) -> ContentMemory:
    torch.manual_seed(0)
    values: dict[str, Any] = {"n_layers": 2, "width": 5, "train_samples": 3, **settings}
    return ContentMemory(Features(), ContentMemoryConfig(**values)).eval()


def batch(steps: int = 3, n_query: int = QUERIES, named: bool = True) -> TrainBatch:
    generator = torch.Generator().manual_seed(1)
    labels, asked = torch.arange(WAYS * SHOTS) % WAYS, torch.arange(n_query) % WAYS
    centres = 2 * torch.randn(BATCH, WAYS, FEATURES, generator=generator)

    def pictures(chosen: Tensor) -> Tensor:
        return centres[:, chosen] + torch.randn(BATCH, len(chosen), FEATURES, generator=generator)

    names = torch.arange(WAYS).expand(BATCH, -1) if named else None
    episodes = tuple(
        Episode(pictures(labels), labels.expand(BATCH, -1), pictures(asked), WAYS, names) for _ in range(steps)
    )
    answers = Answers(asked.expand(BATCH, -1), torch.arange(WAYS).expand(BATCH, -1))
    return TrainBatch(episodes, (answers,) * steps)


def test_the_card_follows_the_settings() -> None:
    card = build().card
    assert (card.transductive, card.continual, card.slot_memory, card.semi_supervised) == (True, True, False, False)
    assert not build(transductive=False).card.transductive
    assert [build(test_samples=4, bayes=b).card.stochastic for b in ("task", "none")] == [True, False]


def test_what_is_learned_is_a_metric_and_three_numbers() -> None:
    method = build().train()
    assert {name for name, _ in method.named_parameters()} == {
        f"graph.evidence.{name}" for name in ("centre", "metric.weight", "log_scale", "bias", "log_variance")
    }
    method.loss(batch()).total.backward()
    for name, parameter in method.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all() and parameter.grad.any(), name


def test_the_loss_in_plain_loops() -> None:
    method, given = build(test_samples=0), batch()
    with torch.no_grad():
        terms = method.loss(given).terms  # in evaluation mode: the expectation, drawn by nobody
        predictions = method.predict_sequence(given.episodes)
    edges, right = [], []
    for prediction, episode, answers in zip(predictions, given.episodes, given.answers, strict=True):
        for b in range(BATCH):
            for q in range(QUERIES):
                label = int(answers.query_labels[b, q])
                right.append(float(prediction.log_probs[b, q, label]))
                for s in range(WAYS * SHOTS):
                    p = float(prediction.details["edges"][b, -1, WAYS * SHOTS + q, s])
                    edges.append(-np.log(p if int(episode.support_labels[b, s]) == label else 1 - p))
    assert terms["edge"].item() == pytest.approx(np.mean(edges), rel=1e-4)
    assert terms["bayes"].item() == pytest.approx(-np.mean(right), rel=1e-4)


def test_gamma_weighs_the_second_term_and_zero_leaves_it_out() -> None:
    def total(gamma: float) -> tuple[float, dict[str, Tensor]]:
        found = build(gamma=gamma).loss(batch())
        return found.total.item(), dict(found.terms)

    (none, terms), (two, with_it) = total(0.0), total(2.0)
    assert "bayes" not in terms and none == pytest.approx(terms["edge"].item())
    assert two == pytest.approx(none + 2 * with_it["bayes"].item(), rel=1e-5)


def test_it_learns_to_tell_classes_apart() -> None:
    method = build(width=FEATURES).train()
    optimiser = torch.optim.Adam(method.parameters(), 0.02)
    losses = []
    for _ in range(40):
        loss = method.loss(batch())
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
        losses.append(loss.total.item())
    assert losses[-1] < 0.8 * losses[0] and loss.terms["accuracy"] > 0.7


def test_every_setting_of_the_reading_changes_the_answer() -> None:
    changes = {"sharpness": 3.0, "query": 0.0, "past_picture": 0.6, "refusal": -0.5, "crowd": 0.9, "node": 1.0}
    changes |= {"together": True, "scale": 14.0}
    for key, value in (*changes.items(), ("past_query", 0.9)):
        episodes = batch(named=key == "past_query").episodes
        with torch.no_grad():
            usual, other = (build(**s).predict_sequence(episodes)[-1].log_probs for s in ({}, {key: value}))
        assert (usual - other).abs().max() > 1e-5, key


def test_samples_average_to_the_expectation() -> None:
    episode = batch().episodes[0]
    with torch.no_grad():
        expected, drawn = build().predict(episode), build(test_samples=4000).predict(episode)
    assert "samples" not in expected.details and drawn.details["samples"].shape == (4000, BATCH, QUERIES, WAYS)
    torch.testing.assert_close(drawn.log_probs.exp(), expected.log_probs.exp(), atol=0.08, rtol=0)


def test_bad_settings_and_sequences_are_refused() -> None:
    with pytest.raises(EngramError, match=r"^gamma = 1.0 needs train_samples of at least 2, not 1; or set gamma = 0"):
        build(train_samples=1)
    for key, least in (("n_layers", 1), ("width", 0), ("capacity", 1)):
        with pytest.raises(EngramError, match=rf"^\[method\] {key} = {least - 1} but at least {least} is needed"):
            build(**{key: least - 1})
    with pytest.raises(EngramError, match=r"^\[method\] scale = 0.0 .* it must be above 0"):
        build(scale=0.0)
    mixed = TrainBatch(*(one + other for one, other in zip(_parts(batch(1)), _parts(batch(1, 3)), strict=True)))
    with pytest.raises(EngramError, match="a sequence of 2 steps has 2 shapes; history needs one"):
        build().loss(mixed)


def _parts(given: TrainBatch) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return given.episodes, given.answers
