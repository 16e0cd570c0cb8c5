"""Relation Net: pairs in loops, the sum over shots, and the reference's habit of normalising a task by its queries."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from toy_store import make_store

from engram.methods.relation_net import RelationNet, RelationNetConfig
from engram.nn.backbones import Flatten, build_backbone
from engram.nn.encoder import Encoder
from engram.nn.heads import class_sums
from engram.nn.task_norm import TaskBatchNorm
from engram.probes.audit import audit
from engram.types import Answers, Episode, TrainBatch

WAYS, SHOTS, QUERIES = 3, 2, 4


def build(statistics: str = "running", shape: tuple[int, ...] = (1, 28, 28), shots: int = SHOTS) -> RelationNet:
    torch.manual_seed(0)
    method = RelationNet(build_backbone("conv64_relation", shape, {"width": 4}), RelationNetConfig(statistics))
    with torch.no_grad():  # weights and running statistics that let answers differ by more than rounding
        for part in method.head.rest:
            if isinstance(part, torch.nn.Linear):
                part.weight.normal_(std=0.5)
        for _ in range(10):
            method.loss(TrainBatch(*zip(*[episode(shape, shots)], strict=True)))
    return method.eval()


def episode(shape: tuple[int, ...] = (1, 28, 28), shots: int = SHOTS) -> tuple[Episode, Answers]:
    labels = torch.stack([torch.randperm(WAYS * shots) % WAYS for _ in range(2)])
    images = torch.randn(2, WAYS * shots + QUERIES, *shape)
    answers = Answers(torch.randint(0, WAYS, (2, QUERIES)), torch.zeros(2, WAYS).long())
    return Episode(images[:, : WAYS * shots], labels, images[:, WAYS * shots :], WAYS), answers


def test_parameter_counts() -> None:
    method = RelationNet(build_backbone("conv64_relation", (3, 84, 84), {}), RelationNetConfig())
    assert sum(p.numel() for p in method.head.parameters()) == 115_601
    assert sum(p.numel() for p in method.parameters()) == 228_689


def test_the_first_weights_are_the_references() -> None:
    torch.manual_seed(0)
    method = RelationNet(build_backbone("conv64_relation", (3, 84, 84), {}), RelationNetConfig())
    for conv in (m for m in method.modules() if isinstance(m, torch.nn.Conv2d)):
        assert conv.weight.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.1) and not conv.bias.any()
    linear = [m for m in method.modules() if isinstance(m, torch.nn.Linear)]
    assert all(m.weight.abs().max() < 0.05 and (m.bias == 1).all() for m in linear)


@torch.no_grad()
@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 50, 50)])  # a padded head on 5x5 maps, a plain one on 11x11
def test_scores_match_loops_over_laid_together_pairs(shape: tuple[int, ...]) -> None:
    method, given = build(shape=shape), episode(shape)[0]
    found = method.predict(given).log_probs.exp()
    for b in range(2):
        support, query = method.backbone(given.support[b]), method.backbone(given.query[b])
        scores = torch.zeros(QUERIES, WAYS)
        for q, c in product(range(QUERIES), range(WAYS)):
            class_map = sum(support[i] for i in range(WAYS * SHOTS) if given.support_labels[b, i] == c)
            pair = torch.cat([class_map, query[q]])[None]
            scores[q, c] = method.head.rest(method.head.first(pair)).sigmoid()[0, 0]
        assert scores.min() > 0 and scores.max() < 1 and scores.std() > 1e-3
        torch.testing.assert_close(found[b], scores / scores.sum(1, keepdim=True), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_loss_is_the_squared_error_of_all_pairs() -> None:
    method, (given, answers) = build(), episode()
    scores = method._relations(method.embed([given])[0]).sigmoid()
    pairs = list(product(range(2), range(QUERIES), range(WAYS)))
    expected = sum((scores[b, q, c] - float(answers.query_labels[b, q] == c)) ** 2 for b, q, c in pairs) / len(pairs)
    terms = method.loss(TrainBatch((given,), (answers,)))
    assert terms.total.item() == pytest.approx(expected.item(), rel=1e-5)
    assert set(terms.terms) == {"squared_error", "accuracy"}


def test_copies_of_a_support_add_up() -> None:
    features, labels = torch.randn(1, 3, 7), torch.tensor([[2, 0, 1]])
    once = class_sums(features, labels, 3)
    torch.testing.assert_close(class_sums(features.repeat(1, 5, 1), labels.repeat(1, 5), 3), 5 * once)


@torch.no_grad()
@pytest.mark.parametrize("statistics", ["running", "task"])
def test_names_of_classes_do_not_matter(statistics: str) -> None:
    method, given = build(statistics), episode()[0]
    names = torch.tensor([2, 0, 1])
    renamed = replace(given, support_labels=names[given.support_labels])
    torch.testing.assert_close(
        method.predict(renamed).log_probs[..., names], method.predict(given).log_probs, atol=1e-5, rtol=0
    )


@torch.no_grad()
@pytest.mark.parametrize("statistics", ["running", "task"])
def test_other_queries_matter_only_to_the_references_habit(statistics: str) -> None:
    method, given = build(statistics), episode()[0]
    changed = replace(given, query=torch.cat([given.query[:, :1], torch.randn(2, QUERIES - 1, 1, 28, 28)], 1))
    gap = (method.predict(given).log_probs[:, 0] - method.predict(changed).log_probs[:, 0]).abs().max()
    assert (gap > 1e-4) == (statistics == "task") == method.card.transductive
    assert method.card.batch_norm == statistics


@torch.no_grad()
def test_the_references_habit_is_a_network_left_in_training_mode() -> None:
    """One task: plain BatchNorm in training mode, supports, queries and pairs each by themselves."""
    method, given = build("task"), episode()[0]
    plain = RelationNet(build_backbone("conv64_relation", (1, 28, 28), {"width": 4}), RelationNetConfig())
    plain.load_state_dict(method.state_dict(), strict=False)
    plain.train()
    for b in range(2):
        parts = [plain.backbone(part[b])[None] for part in (given.support, given.query)]
        alone = Episode(parts[0], given.support_labels[b : b + 1], parts[1], WAYS)
        expected = plain.classify(alone).log_probs[0]
        torch.testing.assert_close(method.predict(given).log_probs[b], expected, atol=1e-4, rtol=0)


def test_the_audit_tells_them_apart() -> None:
    store = make_store(n_classes=8, per_class=8)
    for statistics, verdict in (("running", "clean"), ("task", "declared")):
        settings = {"n_way": WAYS, "n_shot": 1, "n_query": 2, "stream_length": 2, "quick": True}
        method = build(statistics, shots=1)
        method.backbone = Encoder(method.backbone, [0.5], [0.3])
        report = audit(method, store, **settings)
        assert report["company"].verdict == verdict == report.verdict
        assert report["other tasks of the batch"].verdict == "clean"


def test_a_vector_is_a_map_of_one_position() -> None:
    method = RelationNet(Flatten((6,)), RelationNetConfig("task"))
    given = Episode(torch.randn(1, 3, 6), torch.tensor([[0, 1, 2]]), torch.randn(1, 2, 6), 3)
    assert method.predict(given).log_probs.shape == (1, 2, 3)
    assert sum(isinstance(part, TaskBatchNorm) for part in method.modules()) == 2
