"""All methods under one roof: each is held to the claims of its card, on the same tasks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal

import pytest
import torch
from toy_store import make_store

from engram.data.episodes import episodes_at, frozen_tasks
from engram.methods import METHODS
from engram.models.build import build_method
from engram.protocol import Protocol
from engram.recipes.schema import DataSettings, Recipe, TrainSettings
from engram.types import Answers, Episode, LossTerms, Method, MethodCard, Prediction, TrainBatch

STORE = make_store(n_classes=10, per_class=12)
N_WAY, N_SHOT, N_QUERY, STEPS, SEQUENCES = 4, 2, 2, 3, 2
PROTOCOL = Protocol("toy", n_way=N_WAY, n_shot=N_SHOT, n_query=N_QUERY, stream_length=STEPS, n_sequences=SEQUENCES)


@dataclass(frozen=True)
class Variant:
    """A method under one configuration; the card of the instance is what counts."""

    stem: str
    settings: tuple[tuple[str, Any], ...] = ()
    names: Literal["anonymous", "named"] = "anonymous"
    """of the stream it is trained and asked in"""

    def __str__(self) -> str:
        named = [self.names] if self.names == "named" else []
        return "-".join([self.stem, *(str(v) for _, v in self.settings), *named])


NARROW = ("conv32", {"width": 8})
BACKBONES: dict[str, tuple[str, dict[str, Any]]] = {
    "tadam": ("resnet12_film", {"widths": (8, 8, 16, 16)}),
    "ctm": ("conv64_relation", {"width": 16}),
    "covamnet": ("conv64_cova", {"width": 8}),
    **dict.fromkeys(("maml", "reptile", "meta_sgd", "platipus", "meta_lstm"), NARROW),
}
"""of methods that cannot take the vectors of conv32, or adapt all of its weights to each task"""
INNER_LOOPS: dict[str, tuple[tuple[str, Any], ...]] = {
    "maml": (("inner_steps", 1), ("test_steps", 2)),
    "reptile": (("inner_steps", 3), ("test_steps", 3)),
    "platipus": (("inner_steps", 1), ("samples", 2)),
    "meta_lstm": (("updates", 2), ("hidden", 4)),
}
"""few steps, on which no claim depends"""


def tied(stem: str) -> tuple[tuple[str, Any], ...]:
    """Settings of a method whose weights are tied to the tasks' ways or shots, and few steps of an inner loop."""
    card = METHODS[stem].card
    ties = (("n_way", N_WAY),) * card.fixed_ways + (("n_shot", N_SHOT),) * card.fixed_shots
    return (*ties, *INNER_LOOPS.get(stem, ()))


VARIANTS = [
    *(Variant(stem, tied(stem)) for stem in METHODS),
    Variant("stage_one", (("n_base_classes", 10), ("head", "cosine"), ("centring", False))),
    *(Variant(stem, names="named") for stem in ("proto_memory", "knn_memory", "propagation_memory")),
    Variant("proto_memory", (("distance", "cosine"), ("centring", "stream"), ("temperature", 0.1))),
    Variant("gnn", (("n_way", N_WAY), ("unknown_label", "uniform"), ("n_layers", 1))),
    Variant("ctm", (("n_way", N_WAY), ("blocks", "shallow"), ("combine", "matmul"))),
    Variant("ctm", (("n_way", N_WAY), ("blocks", "shallow"), ("head", "relation"))),
    Variant("matching_net", (("fce", True),)),
    Variant("matching_net", (("vote", "sum"), ("temperature", 0.1))),
    Variant("relation_net", (("statistics", "task"),)),
    *(
        Variant(stem, (*tied(stem), ("query_statistics", "queries")))
        for stem in ("maml", "reptile", "meta_sgd", "platipus")
    ),
    Variant("versa", (("batch_norm", "task"), ("average", "logits"))),
    Variant("egnn", (("transductive", False),)),
    Variant("cml_bgnn", (("history", "none"),)),
    Variant("cml_bgnn", (("history", "none"), ("transductive", False))),
    Variant("cml_bgnn", (("transductive", False),)),
    Variant("cml_bgnn", (("bayes", "none"), ("gamma", 0.0))),
    Variant("cml_bgnn", (("edges", "egnn"), ("bayes", "edge"), ("gate", "library"))),
    Variant("content_memory", names="named"),
    Variant("content_memory", (("transductive", False),)),
    Variant("content_memory", (("transductive", False),), names="named"),
]


@cache
def trained(variant: Variant) -> tuple[Method, list[float]]:
    """In evaluation mode after a few steps of training: an untrained graph hardly moves its answers at all."""
    backbone, settings = BACKBONES.get(variant.stem, ("conv32", {}))
    recipe = Recipe(
        name="contract",
        method=variant.stem,
        backbone=backbone,
        backbone_settings=settings,
        method_settings=dict(variant.settings),
        data=DataSettings("toy"),
        train=TrainSettings(1, 1, seed=3),
    )
    method = build_method(recipe, STORE.image_shape, torch.device("cpu"))
    losses = steps(method, 12, names=variant.names) if method.card.trainable else []
    return method.eval(), losses


def steps(method: Method, count: int, **changes: Any) -> list[float]:
    """Adam on one batch; the losses come back."""
    method.train()
    torch.manual_seed(0)
    optimiser = torch.optim.Adam(method.parameters(), 5e-3)
    losses = []
    for _ in range(count):
        given = train_batch(slot_order="class-order", **changes)
        total = torch.stack([objective.loss(given).total for objective in method.objectives()]).sum()
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        losses.append(total.item())
    return losses


def sequence(**changes: Any) -> tuple[tuple[Episode, ...], tuple[Answers, ...]]:
    return episodes_at(STORE, frozen_tasks(STORE, replace(PROTOCOL, **changes)), N_WAY)


def train_batch(**changes: Any) -> TrainBatch:
    """A sequence, and three images of each class for methods that learn from base classes."""
    rows = torch.arange(0, len(STORE.images), 4)
    return TrainBatch(*sequence(**changes), class_batch=(STORE.gather(rows), rows // 12))


@torch.no_grad()
def answers_of(method: Method, episodes: Sequence[Episode]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [p.log_probs for p in method.predict_sequence(episodes)]


def permute(episode: Episode, support: torch.Tensor | None = None, query: torch.Tensor | None = None) -> Episode:
    if support is not None:
        episode = replace(
            episode, support=episode.support[:, support], support_labels=episode.support_labels[:, support]
        )
    return episode if query is None else replace(episode, query=episode.query[:, query])


def close(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.allclose(first.exp(), second.exp(), atol=1e-5)


@pytest.fixture(params=VARIANTS, ids=str)
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Method:
    """The method of a variant; all tasks of the test then come with names where the variant has them."""
    monkeypatch.setattr(sys.modules[__name__], "PROTOCOL", replace(PROTOCOL, names=request.param.names))
    return deepcopy(trained(request.param)[0])


def test_the_card_and_config_are_declared(method: Method) -> None:
    assert isinstance(method.card, MethodCard) and method.card.title and method.card.paper
    assert is_dataclass(type(method).Config)
    assert all(f.default is not f.default_factory for f in fields(type(method).Config))  # every keyword has a default


def test_the_card_speaks_for_the_settings(method: Method) -> None:
    """Commands read and set these keys where the card says so, and nowhere else."""
    card, keys = type(method).card, {f.name for f in fields(type(method).Config)}
    assert {card.samples_key, card.inner_steps_key, card.task_norm_key} - {""} <= keys
    assert bool(card.task_norm_key) == bool(keys & {"statistics", "batch_norm"})
    assert card.query_statistics == ("query_statistics" in keys)
    assert card.base_classes == ("n_base_classes" in keys)
    assert bool(card.samples_key) or "test_samples" not in keys
    assert bool(card.inner_steps_key) or "inner_steps" not in keys


def test_predictions_are_normalised_log_probabilities(method: Method) -> None:
    for log_probs in answers_of(method, sequence()[0]):
        assert log_probs.shape == (SEQUENCES, N_WAY * N_QUERY, N_WAY)
        assert torch.allclose(log_probs.exp().sum(-1), torch.ones(()), atol=1e-5)


@torch.no_grad()
def test_stepwise_equals_the_whole_sequence(method: Method) -> None:
    episodes, _ = sequence()
    history: tuple[torch.Tensor, ...] = ()
    for episode, expected in zip(episodes, answers_of(method, episodes), strict=True):
        prediction: Prediction = method.predict(episode, history)
        history = prediction.history
        assert close(prediction.log_probs, expected)
    assert bool(history) == method.card.continual


def test_later_tasks_change_nothing_at_all(method: Method) -> None:
    episodes, _ = sequence()
    other, _ = sequence(seed=9)
    changed = (*episodes[:2], other[2])
    for first, second in zip(answers_of(method, episodes)[:2], answers_of(method, changed)[:2], strict=True):
        assert torch.equal(first, second)


def test_other_tasks_of_the_batch_change_nothing(method: Method) -> None:
    if method.card.batch_norm == "task":
        pytest.skip("declared: normalises with the statistics of the images at hand")
    episodes, _ = sequence()
    alone = [e.part(slice(0, 1)) for e in episodes]
    for whole, single in zip(answers_of(method, episodes), answers_of(method, alone), strict=True):
        assert close(whole[:1], single)


def test_support_order(method: Method) -> None:
    episode = sequence()[0][0]
    order = torch.randperm(N_WAY * N_SHOT, generator=torch.Generator().manual_seed(1))
    same = close(answers_of(method, [episode])[0], answers_of(method, [permute(episode, support=order)])[0])
    assert same == method.card.support_order_invariant


def test_query_order_of_one_task(method: Method) -> None:
    """Within a task every method must answer each query the same wherever it stands."""
    episode = sequence()[0][0]
    order = torch.randperm(N_WAY * N_QUERY, generator=torch.Generator().manual_seed(1))
    assert close(answers_of(method, [episode])[0][:, order], answers_of(method, [permute(episode, query=order)])[0])


def test_query_order_of_an_earlier_task_matters_only_to_slot_memory(method: Method) -> None:
    episodes, _ = sequence()
    order = torch.roll(torch.arange(N_WAY * N_QUERY), 1)
    permuted = [permute(episodes[0], query=order), *episodes[1:]]
    same = close(answers_of(method, episodes)[-1], answers_of(method, permuted)[-1])
    assert same == (not method.card.slot_memory)


def test_class_relabelling(method: Method) -> None:
    episode = sequence()[0][0]
    new = torch.tensor([2, 0, 3, 1])
    renamed = replace(episode, support_labels=new[episode.support_labels])
    same = close(answers_of(method, [episode])[0], answers_of(method, [renamed])[0][..., new])
    assert same == method.card.class_equivariant


def test_a_query_alone_against_in_company(method: Method) -> None:
    """Every query, for a saturated answer does not show whom it depends on."""
    episode = sequence()[0][0]
    alone = [replace(episode, query=episode.query[:, q : q + 1]) for q in range(N_WAY * N_QUERY)]
    same = close(answers_of(method, [episode])[0], torch.cat([answers_of(method, [e])[0] for e in alone], 1))
    assert same == (not method.card.transductive)


def test_two_evaluations_agree_unless_declared_stochastic(method: Method) -> None:
    episodes, _ = sequence()
    with torch.no_grad():
        first, second = (method.predict_sequence(episodes)[-1].log_probs for _ in range(2))
    assert torch.equal(first, second) or method.card.stochastic


def test_unlabelled_supports(method: Method) -> None:
    """Methods that use them must answer; their hidden labels are not even in the episode."""
    if not method.card.semi_supervised:
        pytest.skip("does not declare semi-supervised")
    episodes, _ = sequence(labelled_fraction=0.5)
    for log_probs in answers_of(method, episodes):
        assert torch.isfinite(log_probs).all()


def test_history_is_tensors_with_the_tasks_first(method: Method) -> None:
    with torch.no_grad():
        history = method.predict(sequence()[0][0]).history
    assert isinstance(history, tuple) and all(isinstance(h, torch.Tensor) for h in history)
    assert all(len(h) in (SEQUENCES, SEQUENCES * N_WAY * N_QUERY) for h in history)


def test_the_losses_reach_every_parameter(method: Method) -> None:
    if not method.card.trainable:
        pytest.skip("nothing to train")
    method.train()
    for names in ("anonymous", "named"):  # some weights serve one kind of stream alone
        for objective in method.objectives():
            terms = objective.loss(train_batch(names=names))
            assert isinstance(terms, LossTerms) and terms.total.ndim == 0
            terms.total.backward()
    groups = {id(p) for group in method.parameter_groups() for p in group["params"]}
    for name, parameter in method.named_parameters():
        assert id(parameter) in groups, name
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize("variant", [v for v in VARIANTS if METHODS[v.stem].card.trainable], ids=str)
def test_a_few_steps_lower_the_loss(variant: Variant) -> None:
    losses = trained(variant)[1]
    assert min(losses[-3:]) < 0.8 * losses[0]
