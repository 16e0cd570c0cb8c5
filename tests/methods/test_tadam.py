"""TADAM: its sizes and start, FiLM and the whole answer in plain loops, both losses' updates, and what learns first."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from random_tasks import random_task

from engram.errors import EngramError
from engram.methods.tadam import Tadam, TadamConfig
from engram.nn.backbones import Flatten, build_backbone
from engram.types import Episode, TrainBatch

IMAGE, WAYS, QUERIES, BASE = (1, 12, 12), 3, 4, 5


episode = partial(random_task, IMAGE)


def batch(progress: float = 0.0) -> TrainBatch:
    given, answers = episode()
    return TrainBatch((given,), (answers,), (torch.randn(6, *IMAGE), torch.randint(0, BASE, (6,))), progress)


def build(conditioned: bool = True, **changes) -> Tadam:
    """In evaluation mode; ``conditioned`` lets the task be felt, as it is not in a new model."""
    torch.manual_seed(0)
    backbone = build_backbone("resnet12_film", IMAGE, {"widths": (3, 4, 4, 6)})
    method = Tadam(backbone, TadamConfig(**{"n_base_classes": BASE, **changes}))
    if conditioned:
        torch.nn.init.normal_(method.task_embedding.gamma0)
        torch.nn.init.normal_(method.task_embedding.beta0)
    with torch.no_grad():
        for _ in range(10):
            method.loss(batch())
    return method.eval()


def test_parameter_counts():
    method = Tadam(build_backbone("resnet12_film", (3, 84, 84), {}), TadamConfig())
    parts = (method.backbone, method.task_embedding, method.base_classifier)
    assert [sum(p.numel() for p in part.parameters()) for part in parts] == [7_996_800, 7_144_344, 32_832]


def film_by_loops(method: Tadam, image: torch.Tensor, film: list[tuple[torch.Tensor, torch.Tensor]] | None):
    """One image (C, H, W) through the encoder: BatchNorm, scale and shift written out, one layer at a time."""

    def normed(norm, x):
        scale = norm.weight / (norm.running_var + 1e-3).sqrt()
        return (x - norm.running_mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]

    x, layer = image, 0
    for k, block in enumerate(method.backbone.blocks):
        out = x
        for position in range(3):
            out = normed(block.norms[position], F.conv2d(out, block.convs[position].weight, padding=1))
            if film is not None:
                gamma, beta = film[layer]
                out = (1 + gamma)[:, None, None] * out + beta[:, None, None]
            layer += 1
            out = out * out.sigmoid() if position < 2 else out
        out = out + normed(block.shortcut[1], F.conv2d(x, block.shortcut[0].weight))
        out = out * out.sigmoid()
        x = F.max_pool2d(out, 2, ceil_mode=True) if k < 3 else out
    return x.mean((1, 2))


@torch.no_grad()
def test_the_whole_answer_matches_loops():
    method, (given, _) = build(), episode()
    found, network = method.predict(given).log_probs, method.task_embedding
    for b in range(2):
        labels = given.support_labels[b].tolist()

        def prototypes(film, b=b, labels=labels):
            features = [film_by_loops(method, image, film) for image in given.support[b]]
            return [sum(f for f, y in zip(features, labels, strict=True) if y == c) / 2 for c in range(WAYS)]

        task = sum(prototypes(None)) / WAYS
        film = [
            (network.gamma0[k] * network.scales[k](task), network.beta0[k] * network.shifts[k](task)) for k in range(12)
        ]
        means = prototypes(film)
        for q in range(QUERIES):
            feature = film_by_loops(method, given.query[b, q], film)
            logits = torch.stack([-7.5 * ((feature - mean) ** 2).sum().sqrt() for mean in means])
            torch.testing.assert_close(found[b, q], logits.log_softmax(0), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_new_model_is_not_conditioned_and_a_scaled_prototypical_net():
    method, (given, _) = build(conditioned=False, alpha=2.0), episode()
    images = given.query.flatten(0, 1)
    film = method.task_embedding(torch.randn(1, 6)).repeat_interleave(len(images), 0)
    assert torch.equal(method.backbone(images, film), method.backbone(images))
    support, query = (method.backbone(p.flatten(0, 1)).unflatten(0, (2, -1)) for p in (given.support, given.query))
    for b in range(2):
        means = torch.stack([support[b][given.support_labels[b] == c].mean(0) for c in range(WAYS)])
        expected = (-2.0 * torch.cdist(query[b], means)).log_softmax(-1)
        torch.testing.assert_close(method.predict(given).log_probs[b], expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_every_task_has_its_own_conditions():
    method, (given, _) = build(), episode()
    alone = Episode(given.support[1:], given.support_labels[1:], given.query[1:], WAYS)
    torch.testing.assert_close(method.predict(alone).log_probs[0], method.predict(given).log_probs[1])
    other = replace(given, support=5 * torch.randn_like(given.support))
    film, changed = (
        method.task_embedding(method.backbone(e.support.flatten(0, 1)).unflatten(0, (2, -1)).mean(1))
        for e in (given, other)
    )
    assert (film - changed).abs().max() > 1e-2


def test_in_the_first_step_only_the_scalars_of_the_task_embedding_learn():
    method = build(conditioned=False).train()
    method.loss(batch()).total.backward()
    network = method.task_embedding
    assert network.gamma0.grad.abs().min() > 0 and network.beta0.grad.abs().min() > 0
    for name, parameter in network.named_parameters():
        if name not in ("gamma0", "beta0"):
            assert not parameter.grad.any(), name


@pytest.mark.parametrize(("progress", "periods"), [(0.0, 1), (0.049, 1), (0.05, 2), (0.5, 11), (0.999, 20)])
def test_base_classes_are_learned_before_the_tasks_and_a_tenth_more_rarely_in_each_twentieth(progress, periods):
    method, given = build(), batch()
    base, tasks = method.objectives()
    assert base.chance(progress) == pytest.approx(0.9**periods)
    assert base.chance(torch.tensor(progress)).item() == pytest.approx(0.9**periods)
    assert tasks.chance is None
    with torch.no_grad():
        images, ids = given.class_batch
        logits = F.linear(method.backbone(images), method.base_classifier.weight, method.base_classifier.bias)
        expected = sum(-logits[i].log_softmax(0)[ids[i]] for i in range(6)) / 6
        assert base.loss(given).total.item() == pytest.approx(expected.item(), rel=1e-5)
        terms = tasks.loss(given)
    assert torch.equal(terms.total, terms.terms["nll"])


def test_the_start_is_that_of_the_public_code():
    torch.manual_seed(0)
    method = Tadam(build_backbone("resnet12_film", (3, 84, 84), {}), TadamConfig())
    for network in (*method.task_embedding.scales, *method.task_embedding.shifts):
        for layer in (network.first, network.second, network.third):
            assert layer.weight.std().item() == pytest.approx((0.2 / layer.out_features) ** 0.5, rel=0.05)
            assert not layer.bias.any()
    base = method.base_classifier
    assert base.weight.abs().max().item() == pytest.approx((6 / (512 + 64)) ** 0.5, rel=0.01) and not base.bias.any()


def test_without_base_classes_it_learns_from_tasks_alone():
    method = build(auxiliary=False)
    given = replace(batch(), class_batch=None)
    terms = method.loss(given)
    assert method.base_classifier is None and torch.equal(terms.total.detach(), terms.terms["nll"])
    assert len(method.objectives()) == 1


def test_decay_is_for_weights_but_the_base_classifiers_and_the_scalars_have_their_own():
    method = build(film_decay=0.02)
    weights, plain, scalars = method.parameter_groups()
    assert all(p.ndim > 1 for p in weights["params"]) and "weight_decay" not in weights
    base = method.base_classifier.weight
    assert [p is base for p in plain["params"] if p.ndim > 1] == [True] and plain["weight_decay"] == 0
    assert len(scalars["params"]) == 2 and scalars["weight_decay"] == 0.02


def test_decay_in_the_loss_is_that_of_the_optimiser_before_clipping():
    """Gradients differ by decay times weight: of encoder and task embedding for tasks, the encoder for base classes."""
    plain, decayed = (build(loss_decay=decay, film_decay=0.02).train() for decay in (0.0, 0.3))
    given = batch()
    scalars = ("task_embedding.gamma0", "task_embedding.beta0")
    for index, parts in enumerate((("backbone",), ("backbone", "task_embedding"))):
        found = []
        for method in (plain, decayed):
            method.zero_grad()
            method.objectives()[index].loss(given).total.backward()
            found.append({name: p.grad for name, p in method.named_parameters()})
        for name, weight in decayed.named_parameters():
            before, after = (torch.zeros_like(weight) if g[name] is None else g[name] for g in found)
            rate = 0.3 if name.startswith(parts) and weight.ndim > 1 else 0.02 if index and name in scalars else 0.0
            torch.testing.assert_close(after, before + rate * weight, msg=name, atol=1e-5, rtol=1e-4)
    assert [group.get("weight_decay") for group in decayed.parameter_groups()] == [None, 0.0, 0.0]


def test_what_it_cannot_do_is_told():
    with pytest.raises(EngramError, match="tadam scales and shifts the layers of its backbone but this one has none"):
        Tadam(Flatten((6,)), TadamConfig())
    with pytest.raises(EngramError, match=r"set class_batch in \[data\]"):
        build().objectives()[0].loss(replace(batch(), class_batch=None))
    with pytest.raises(EngramError, match="alpha = 0 but it must be above 0"):
        TadamConfig(alpha=0)
