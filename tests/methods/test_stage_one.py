"""The base classifier against torch's own losses, and the centroid rule against a slow oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from engram.errors import EngramError
from engram.methods.stage_one import StageOne, StageOneConfig
from engram.nn.heads import MOMENTUM, class_means
from engram.nn.view import fit_view
from engram.types import Episode, TrainBatch


class Identity(nn.Module):
    out_shape = (6,)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features


def make(**settings: Any) -> StageOne:
    torch.manual_seed(0)
    return StageOne(Identity(), StageOneConfig(**{"n_base_classes": 5, **settings}))


def batch(n: int = 40, offset: float = 0.0) -> TrainBatch:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(n, 6, generator=generator) + offset
    return TrainBatch((), (), class_batch=(features, torch.randint(0, 5, (n,), generator=generator)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_linear_loss_is_torchs_cross_entropy(smoothing: float) -> None:
    method, (features, ids) = make(label_smoothing=smoothing), batch().class_batch or ()
    logits = features @ method.head.weight.T + method.head.bias
    terms = method.loss(batch())
    assert torch.allclose(terms.total, F.cross_entropy(logits, ids, label_smoothing=smoothing))
    assert torch.allclose(terms.terms["nll"], F.cross_entropy(logits, ids))
    assert terms.terms["accuracy"] == (logits.argmax(1) == ids).float().mean()


def test_cosine_head_does_not_see_lengths() -> None:
    method, (features, ids) = make(head="cosine", temperature=4.0), batch().class_batch or ()
    expected = F.cross_entropy(
        4 * F.cosine_similarity(features[:, None], method.head.weight[None].detach(), dim=-1), ids
    )
    assert torch.allclose(method.loss(batch()).total, expected)
    assert torch.allclose(method.loss(TrainBatch((), (), class_batch=(7 * features, ids))).total, expected)
    assert method.head.bias is None


def test_a_learnt_scale_starts_at_the_temperature_and_leaves_the_answers_alone() -> None:
    fixed, learnt = make(head="cosine", temperature=4.0), make(head="cosine", temperature=4.0, learn_scale=True)
    terms = learnt.loss(batch())
    assert torch.equal(terms.total, fixed.loss(batch()).total) and "scale" not in fixed.state_dict()
    terms.total.backward()
    features, ids = batch().class_batch or ()
    cosines = F.cosine_similarity(features[:, None], learnt.head.weight[None].detach(), dim=-1)
    moved, back = (F.cross_entropy((4 + step) * cosines, ids) for step in (1e-2, -1e-2))
    assert learnt.scale.grad is not None
    assert learnt.scale.grad.item() == pytest.approx((moved - back).item() / 2e-2, abs=1e-4)
    learnt.scale.data.fill_(50.0)
    task = episode()
    assert torch.equal(learnt.eval().predict(task).log_probs, fixed.eval().predict(task).log_probs)


def test_base_mean_is_an_average_first_and_follows_after() -> None:
    method = make()
    means = []
    for step in range(3):
        method.loss(batch(offset=float(step)))
        means.append((batch(offset=float(step)).class_batch or ())[0].mean(0))
        assert torch.allclose(method.base_mean, torch.stack(means).mean(0), atol=1e-6)
    method.batches_seen.fill_(10_000)
    before = method.base_mean.clone()
    method.loss(batch(offset=100.0))
    target = (batch(offset=100.0).class_batch or ())[0].mean(0)
    assert torch.allclose(method.base_mean, before + MOMENTUM * (target - before), atol=1e-4)
    kept = method.base_mean.clone()
    method.eval().loss(batch())
    assert torch.equal(method.base_mean, kept)
    assert {"base_mean", "batches_seen"} <= method.state_dict().keys()


def test_directions_are_centred_whatever_the_lengths() -> None:
    method, (features, _) = make(centring_of="directions"), batch(offset=1.0).class_batch or ()
    method.loss(batch(offset=1.0))
    assert torch.allclose(method.base_mean, F.normalize(features, dim=-1).mean(0), atol=1e-6)
    task = episode()
    longer = replace(task, support=task.support * 3, query=task.query * torch.rand(2, 4, 1).add(0.1))
    first, second = (method.eval().predict(asked).log_probs for asked in (task, longer))
    assert torch.allclose(first, second, atol=1e-5)
    plain = make().eval()
    plain.base_mean.copy_(method.base_mean)
    assert not torch.allclose(first, plain.predict(task).log_probs, atol=1e-3)


def episode() -> Episode:
    generator = torch.Generator().manual_seed(2)
    labels = torch.tensor([[0, 1, 1, 2, 0]]).expand(2, 5)
    return Episode(torch.randn(2, 5, 6, generator=generator), labels, torch.randn(2, 4, 6, generator=generator), 3)


@pytest.mark.parametrize("centring", [True, False])
def test_query_goes_to_the_nearest_centroid_by_angle(centring: bool) -> None:
    method = make(centring=centring, temperature=3.0).eval()
    method.base_mean.copy_(torch.linspace(-1, 1, 6))
    task, shift = episode(), method.base_mean if centring else torch.zeros(6)
    found = method.predict(task).log_probs.exp()
    for b in range(2):
        units = [(x - shift) / (x - shift).norm() for x in task.support[b]]
        labels = task.support_labels[b].tolist()
        centroids = [torch.stack([u for u, c in zip(units, labels, strict=True) if c == k]).mean(0) for k in range(3)]
        for q, x in enumerate(task.query[b]):
            cosines = torch.stack([F.cosine_similarity(x - shift, c, dim=0) for c in centroids])
            assert torch.allclose(found[b, q], (3 * cosines).softmax(0), atol=1e-5)


def test_centring_undoes_a_shift_that_all_features_share() -> None:
    method, task = make().eval(), episode()
    before = method.predict(task).log_probs
    moved = replace(task, support=task.support + 50, query=task.query + 50)
    assert not torch.allclose(method.predict(moved).log_probs, before, atol=0.1)
    method.base_mean += 50
    assert torch.allclose(method.predict(moved).log_probs, before, atol=1e-3)


def test_what_it_needs_is_told() -> None:
    with pytest.raises(EngramError, match=r"set class_batch in \[data\]"):
        make().loss(TrainBatch((), ()))
    features, ids = batch().class_batch or ()
    with pytest.raises(EngramError, match=r"n_base_classes = 3 but the batch has an image of class 4"):
        make(n_base_classes=3).loss(TrainBatch((), (), class_batch=(features, ids)))
    for settings, sentence in (
        ({"n_base_classes": 1}, "n_base_classes = 1 but at least 2 is needed"),
        ({"label_smoothing": 1.0}, "label_smoothing = 1.0 but it lies from 0 to below 1"),
        ({"temperature": 0.0}, "temperature = 0.0 but it must be above 0"),
        ({"turned": 1.5}, "turned = 1.5 but it makes sense from 0 to 1 alone"),
        ({"learn_scale": True}, "learn_scale = True but only head = 'cosine' has a scale"),
    ):
        with pytest.raises(EngramError, match=sentence):
            make(**settings)


def test_ids_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    method, looks = make(), []
    largest = torch.Tensor.max
    monkeypatch.setattr(torch.Tensor, "max", lambda self, *a, **k: looks.append(1) or largest(self, *a, **k))
    for _ in range(3):
        method.loss(batch())
    assert len(looks) == 1


def test_a_step_never_waits_for_the_device() -> None:
    """A meta tensor has no numbers: whoever looks at one fails. The first batch is looked at, the others are not."""
    images, ids = torch.empty(8, 6, device="meta"), torch.empty(8, dtype=torch.int64, device="meta")
    method = make(label_smoothing=0.1).to("meta")
    with pytest.raises(RuntimeError):
        method.loss(TrainBatch((), (), class_batch=(images, ids)))
    method._ids_checked = True
    method.loss(TrainBatch((), (), class_batch=(images, ids))).total.backward()


def test_a_view_stands_in_for_centring() -> None:
    """Each task is looked at through the view of its own supports, whatever the base classes were."""
    method = make(view=True).eval()
    method.base_mean.fill_(9.0)
    support, query = torch.rand(2, 6, 6), torch.rand(2, 4, 6)
    labels = torch.tensor([[0, 1, 2, 0, 1, 2], [2, 1, 0, 0, 1, 2]])
    found = method.classify(Episode(support, labels, query, 3)).log_probs
    for task in range(2):
        look = fit_view(support[task], labels[task], 3)
        means = class_means(look(support[task])[None], labels[task][None], 3)[0]
        expected = (10 * look(query[task]) @ F.normalize(means, dim=-1).T).log_softmax(-1)
        assert torch.allclose(found[task], expected, atol=1e-6)
