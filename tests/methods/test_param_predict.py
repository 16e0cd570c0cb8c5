"""Param_Predict: the map at its start, what states a class in training, and the means it follows."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from engram.errors import EngramError
from engram.methods.param_predict import MOMENTUM, ActivationMap, ParamPredict, ParamPredictConfig
from engram.nn.backbones import Flatten
from engram.types import Answers, Episode, TrainBatch

FEATURES, WAYS, BASE = 6, 3, 8


def build(moved: bool = False, **settings) -> ParamPredict:
    torch.manual_seed(0)
    method = ParamPredict(Flatten((FEATURES,)), ParamPredictConfig(**{"n_base_classes": BASE, **settings}))
    if moved:  # away from the identity
        for parameter in method.predict_weights.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
    return method


def episode(shots: int = 2) -> Episode:
    labels = torch.stack([torch.randperm(WAYS * shots) % WAYS for _ in range(2)])
    return Episode(torch.rand(2, WAYS * shots, FEATURES), labels, torch.rand(2, 4, FEATURES), WAYS)


def batch() -> TrainBatch:
    answers = Answers(torch.randint(0, WAYS, (2, 4)), torch.tensor([[5, 0, 2], [1, 7, 0]]))
    return TrainBatch((episode(),), (answers,))


@pytest.mark.parametrize(("width", "expected"), [(64, 8_320), (640, 820_480)])
def test_parameter_counts(width, expected):
    assert sum(p.numel() for p in ActivationMap(width, "relu").parameters()) == expected


def test_the_map_starts_as_the_direction_of_the_activation():
    positive, signed = torch.rand(5, FEATURES), torch.randn(5, FEATURES)
    for kind in ("relu", "none"):
        torch.testing.assert_close(ActivationMap(FEATURES, kind)(positive), F.normalize(positive, dim=-1))
    torch.testing.assert_close(ActivationMap(FEATURES, "none")(signed), F.normalize(signed, dim=-1))
    cut = ActivationMap(FEATURES, "relu")(signed)  # what ReLU does to an encoder with negative features
    torch.testing.assert_close(cut, F.normalize(signed.clamp(min=0), dim=-1))


def test_at_the_start_it_is_the_nearest_mean_by_dot_product():
    method, task = build(), episode()
    expected = torch.zeros(2, 4, WAYS)
    for b in range(2):
        for c in range(WAYS):
            mean = task.support[b, task.support_labels[b] == c].mean(0)
            expected[b, :, c] = task.query[b] @ (mean / mean.norm())
    torch.testing.assert_close(method.predict(task).log_probs, expected.log_softmax(-1))


def test_the_map_in_numbers():
    method, task = build(moved=True), episode()
    first, second = method.predict_weights.first, method.predict_weights.second
    for c in range(WAYS):
        mean = task.support[0, task.support_labels[0] == c].mean(0)
        hidden = (first.weight @ (mean / mean.norm()) + first.bias).clamp(min=0)
        out = second.weight @ hidden + second.bias
        torch.testing.assert_close(method.predict_weights(mean), out / out.norm())


def test_lengths_of_supports_do_not_matter_and_those_of_queries_are_a_temperature():
    method, task = build(moved=True), episode(shots=1)
    before = method.predict(task).log_probs
    longer = replace(task, support=task.support * torch.tensor([2.0, 5.0, 0.1])[None, :, None])
    torch.testing.assert_close(method.predict(longer).log_probs, before)
    warmer = method.predict(replace(task, query=3 * task.query)).log_probs
    assert torch.equal(warmer.argmax(-1), before.argmax(-1)) and not torch.allclose(warmer, before, atol=1e-2)


def test_a_class_does_not_see_the_others():
    method = build(moved=True)
    means = torch.rand(2, WAYS, FEATURES)
    changed = means.clone()
    changed[:, 1:] = torch.rand(2, WAYS - 1, FEATURES)
    torch.testing.assert_close(method.predict_weights(means)[:, 0], method.predict_weights(changed)[:, 0])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_class_is_stated_by_its_mean_or_by_the_tasks_supports(share):
    method, given = build(moved=True, mean_share=share).eval(), batch()
    method.mean_activation.copy_(torch.rand(BASE, FEATURES))
    task, answers = given.episodes[0], given.answers[0]
    losses = []
    for b in range(2):
        supports = [task.support[b, task.support_labels[b] == c].mean(0) for c in range(WAYS)]
        means = [method.mean_activation[i] for i in answers.class_ids[b]]
        weights = method.predict_weights(torch.stack(means if share else supports))
        losses.append(F.cross_entropy(task.query[b] @ weights.T, answers.query_labels[b]))
    torch.testing.assert_close(method.loss(given).total, torch.stack(losses).mean())


def test_about_three_in_ten_classes_are_stated_by_their_mean():
    method = build()
    method.mean_activation.copy_(torch.eye(BASE, FEATURES))
    stated: list[torch.Tensor] = []
    method.predict_weights.register_forward_pre_hook(lambda _, inputs: stated.append(inputs[0]))
    ids = torch.stack([torch.randperm(BASE)[:WAYS] for _ in range(2000)])
    zeros = torch.zeros(2000, WAYS, FEATURES)
    task = Episode(zeros, torch.arange(WAYS).expand(2000, WAYS), zeros, WAYS)
    method.eval().loss(TrainBatch((task,), (Answers(torch.zeros(2000, WAYS).long(), ids),)))
    drawn = (stated[0].abs().sum(-1) > 0)[ids < FEATURES].float().mean()
    assert 0.27 < drawn < 0.33


def test_means_are_followed_by_class_and_kept_with_the_weights():
    method, seen = build(), {}
    for _ in range(3):
        given = batch()
        method.loss(given)
        task, answers = given.episodes[0], given.answers[0]
        for b in range(2):
            labels = [*task.support_labels[b].tolist(), *answers.query_labels[b].tolist()]
            for label, x in zip(labels, [*task.support[b], *task.query[b]], strict=True):
                seen.setdefault(int(answers.class_ids[b, label]), []).append(x)
    for c in range(BASE):
        expected = torch.stack(seen[c]).mean(0) if c in seen else torch.zeros(FEATURES)
        torch.testing.assert_close(method.mean_activation[c], expected)
    kept = method.mean_activation.clone()
    method.eval().loss(batch())
    assert torch.equal(method.mean_activation, kept)
    assert {"mean_activation", "images_seen"} <= method.state_dict().keys()
    method.train().images_seen.fill_(1e6)
    method.loss(batch())
    changed = (method.mean_activation - kept).abs().amax(1)
    assert (changed[[0, 1, 2, 5, 7]] > MOMENTUM / 100).all() and (changed[[3, 4, 6]] == 0).all()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"n_base_classes": 1}, "n_base_classes = 1 but at least 2 is needed"),
        ({"mean_share": 1.5}, "mean_share = 1.5 but it lies from 0 to 1"),
    ],
)
def test_settings_that_cannot_be_are_told(settings, told):
    with pytest.raises(EngramError, match=told):
        build(**settings)
