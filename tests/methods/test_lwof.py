"""LwoF: the generated weights against loops, what the memory may hold, and what it reduces to without it."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from engram.errors import EngramError
from engram.methods.lwof import Lwof, LwofConfig
from engram.nn.backbones import ConvSigned, Flatten
from engram.types import Answers, Episode, TrainBatch

FEATURES, WAYS, BASE = 6, 3, 8


def build(**settings) -> Lwof:
    torch.manual_seed(0)
    return Lwof(Flatten((FEATURES,)), LwofConfig(**{"n_base_classes": BASE, **settings}))


def episode(n_tasks: int = 2) -> Episode:
    labels = torch.tensor([[0, 1, 1, 2, 0, 1]]).expand(n_tasks, 6)  # uneven, in no order
    return Episode(torch.randn(n_tasks, 6, FEATURES), labels, torch.randn(n_tasks, 4, FEATURES), WAYS)


def batch(n_base: int = 12) -> TrainBatch:
    answers = Answers(torch.randint(0, WAYS, (2, 4)), torch.tensor([[5, 0, 2], [1, 7, 3]]))
    class_batch = (torch.randn(n_base, FEATURES), torch.arange(n_base) % BASE)
    return TrainBatch((episode(),), (answers,), class_batch)


def test_parameter_counts():
    method = Lwof(ConvSigned((3, 84, 84)), LwofConfig())
    counts = {name: sum(p.numel() for p in m.parameters()) for name, m in method.named_children()}
    assert counts == {"backbone": 112_832, "attention": 1600 * 1600 + 1600 + 64 * 1600 + 1}  # 2.66 M
    assert method.mean_gain.numel() == method.read_gain.numel() == 1600
    assert method.base_weights.shape == (64, 1600) and method.scale.item() == 10


def test_generated_weights_in_loops():
    method, task = build(), episode()
    method.mean_gain.data.normal_()
    method.read_gain.data.normal_()
    kept = torch.tensor([[1, 3, 4, 6, 7], [0, 2, 4, 5, 6]])
    found = method.generate(task, kept)
    attention = method.attention
    for b in range(2):
        for c in range(WAYS):
            directions, reads = [], []
            for s in range(6):
                if task.support_labels[b, s] != c:
                    continue
                z = task.support[b, s] / task.support[b, s].norm()
                asked = attention.query.weight @ z + attention.query.bias
                scores = torch.stack([10 * F.cosine_similarity(asked, attention.keys[k], dim=0) for k in kept[b]])
                rows = [method.base_weights[k] / method.base_weights[k].norm() for k in kept[b]]
                reads.append(sum(p * row for p, row in zip(scores.softmax(0), rows, strict=True)))
                directions.append(z)
            average = method.mean_gain * torch.stack(directions).mean(0)
            expected = average + method.read_gain * torch.stack(reads).mean(0)
            torch.testing.assert_close(found[b, c], expected)


def test_without_attention_the_weights_are_averaged_features():
    task = episode()
    directions = F.normalize(task.support, dim=-1)
    for method in (build(attention=False), build()):
        if method.config.attention:
            method.read_gain.data.zero_()
        found = method.generate(task)
        for c in range(WAYS):
            members = directions[0, task.support_labels[0] == c]
            torch.testing.assert_close(found[0, c], members.mean(0))
    nearest = F.cosine_similarity(task.query[:, :, None], found[:, None], dim=-1).argmax(-1)
    assert torch.equal(method.predict(task).log_probs.argmax(-1), nearest)


def test_answers_ignore_the_order_of_base_classes_and_the_length_of_supports():
    method, task = build(), episode()
    before = method.predict(task).log_probs
    assert not torch.allclose(before, build(attention=False).predict(task).log_probs, atol=1e-3)
    order = torch.randperm(BASE)
    for table in (method.base_weights, method.attention.keys):
        table.data = table.data[order]
    torch.testing.assert_close(method.predict(task).log_probs, before)
    lengths = torch.rand(2, 6, 1) + 0.5
    torch.testing.assert_close(method.predict(replace(task, support=lengths * task.support)).log_probs, before)


def test_classes_of_a_task_are_out_of_its_memory_and_out_of_its_columns():
    method, given = build(), batch()
    first = replace(given, episodes=(_only(given.episodes[0], 0),), answers=(_first_answers(given.answers[0]),))
    before = method.loss(first).total
    for table in (method.base_weights, method.attention.keys):
        kept = table.data.clone()
        table.data[[5, 0, 2]] += torch.randn(3, FEATURES)
        torch.testing.assert_close(method.loss(first).total, before)
        table.data[4] += torch.randn(FEATURES)
        assert not torch.allclose(method.loss(first).total, before, atol=1e-4)
        table.data.copy_(kept)


def _first_answers(answers: Answers) -> Answers:
    return Answers(answers.query_labels[:1], answers.class_ids[:1])


def test_the_loss_in_loops():
    method, given = build(), batch()
    task, answers, (images, ids) = given.episodes[0], given.answers[0], given.class_batch
    novel, base = [], []
    for b in range(2):
        aside = answers.class_ids[b].tolist()
        kept = [c for c in range(BASE) if c not in aside]
        generated = method.generate(_only(task, b), torch.tensor([kept]))[0]
        weights = torch.cat([method.base_weights[kept], generated])
        for x, target in zip(task.query[b], answers.query_labels[b], strict=True):
            logits = 10 * F.cosine_similarity(x, weights)
            novel.append(F.cross_entropy(logits, len(kept) + target))
        for x, c in zip(images, ids.tolist(), strict=True):
            if c not in aside:
                base.append(F.cross_entropy(10 * F.cosine_similarity(x, weights), torch.tensor(kept.index(c))))
    terms = method.loss(given)
    torch.testing.assert_close(terms.terms["novel_nll"], torch.stack(novel).mean().detach())
    torch.testing.assert_close(terms.terms["base_nll"], torch.stack(base).mean().detach())
    torch.testing.assert_close(terms.total, (torch.stack(novel).mean() + torch.stack(base).mean()) / 2)


def _only(task: Episode, b: int) -> Episode:
    one = slice(b, b + 1)
    return replace(task, support=task.support[one], support_labels=task.support_labels[one], query=task.query[one])


def test_what_it_needs_is_told():
    with pytest.raises(EngramError, match=r"set class_batch in \[data\]"):
        build().loss(replace(batch(), class_batch=None))
    with pytest.raises(EngramError, match="n_way = 3 but only 3 base classes"):
        build(n_base_classes=3).loss(batch())
    with pytest.raises(EngramError, match="n_base_classes = 1 but at least 2 is needed"):
        build(n_base_classes=1)
    with pytest.raises(EngramError, match="scale = 0 but it must be above 0"):
        build(scale=0)
