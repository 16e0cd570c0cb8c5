"""SNAIL: queries as last steps against whole sequences, causality, and whose label stands beside whom."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from engram.errors import EngramError
from engram.methods.snail import AttentionBlock, DenseBlock, Snail, SnailConfig
from engram.nn.backbones import BACKBONES, Flatten
from engram.types import Episode

FEATURES, WAYS, SHOTS = 4, 3, 2


def build(**settings) -> Snail:
    torch.manual_seed(0)
    return Snail(Flatten((FEATURES,)), SnailConfig(**{"n_way": WAYS, "n_shot": SHOTS, **settings})).double().eval()


def episode(n_tasks: int = 2, ways: int = WAYS, n_query: int = 4) -> Episode:
    labels = torch.stack([torch.randperm(ways * SHOTS) % ways for _ in range(n_tasks)])
    support, query = (torch.randn(n_tasks, n, FEATURES).double() for n in (ways * SHOTS, n_query))
    return Episode(support, labels, query, ways)


def dense(block: DenseBlock, sequence: torch.Tensor) -> torch.Tensor:
    """One sequence (T, c) by a causal convolution of kernel 2 with torch's own layer."""
    kernel = torch.stack([block.before.weight, block.now.weight], -1)
    padded = F.pad(sequence.T[None], (block.dilation, 0))
    a, b = F.conv1d(padded, kernel, block.now.bias, dilation=block.dilation)[0].T.chunk(2, -1)
    return torch.cat([sequence, torch.tanh(a) * torch.sigmoid(b)], -1)


def attention(block: AttentionBlock, sequence: torch.Tensor) -> torch.Tensor:
    reads = []
    for t in range(len(sequence)):
        past = sequence[: t + 1]
        scores = torch.stack([block.query(sequence[t]) @ block.key(x) for x in past]) / block.key.out_features**0.5
        reads.append(sum(p * block.value(x) for p, x in zip(scores.softmax(0), past, strict=True)))
    return torch.cat([sequence, torch.stack(reads)], -1)


def slowly(method: Snail, task: Episode, b: int, q: int) -> torch.Tensor:
    """Every step of one query's own sequence, from first to last. -> (T, n_way)"""
    labels = [F.one_hot(c, WAYS).double() for c in task.support_labels[b]]
    steps = [torch.cat([x, y]) for x, y in zip(task.support[b], labels, strict=True)]
    sequence = torch.stack([*steps, torch.cat([task.query[b, q], torch.zeros(WAYS).double()])])
    for block in method.blocks:
        sequence = (dense if isinstance(block, DenseBlock) else attention)(block, sequence)
    return method.out(sequence)


def test_parameter_counts_and_widths():
    encoder = BACKBONES["resnet_snail"]((3, 84, 84))
    assert encoder.out_shape == (384,) and round(sum(p.numel() for p in encoder.parameters()) / 1e6, 1) == 3.5
    for shots, head, widths in (
        (1, 4_747_646, [389, 421, 805, 933, 1317, 1573]),
        (5, 8_529_790, [389, 421, 1061, 1189, 1829, 2085]),
    ):
        method = Snail(Flatten((384,)), SnailConfig(n_shot=shots))
        assert sum(p.numel() for p in method.parameters()) == head
        seen = [block.key.in_features for block in method.blocks if isinstance(block, AttentionBlock)]
        after = [block.key.in_features + block.value.out_features for block in method.blocks if hasattr(block, "key")]
        assert sorted([*seen, *after]) == widths
        depth = {1: [1, 2, 4], 5: [1, 2, 4, 8, 16]}[shots]
        assert [block.dilation for block in method.blocks if isinstance(block, DenseBlock)] == 2 * depth


def test_each_query_is_the_last_step_of_a_sequence_of_its_own():
    method, task = build(), episode()
    found = method.predict(task).log_probs
    for b in range(2):
        for q in range(4):
            torch.testing.assert_close(found[b, q], slowly(method, task, b, q)[-1].log_softmax(-1))


def test_no_step_sees_a_later_one():
    method, task = build(), episode(1)
    labels, queries = F.one_hot(task.support_labels, WAYS).double(), F.pad(task.query, (0, WAYS))

    def steps(images: torch.Tensor) -> torch.Tensor:
        support, query = torch.cat([images, labels], -1), queries
        for block in method.blocks:
            support, query = block(support, query)
        return support

    for changed in range(WAYS * SHOTS):
        moved = task.support.clone()
        moved[0, changed] += 1.0
        gap = (steps(task.support) - steps(moved)).abs().amax((0, 2))
        assert (gap[:changed] == 0).all() and (gap[changed:] > 0).all()


def test_a_label_belongs_to_the_picture_beside_it():
    """Not to the next one, as where labels are shifted; and the query brings none."""
    method, task = build(), episode(1)
    seen: list[torch.Tensor] = []
    method.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    method.predict(task)
    support, query = seen
    for s in range(WAYS * SHOTS):
        assert torch.equal(support[0, s, :FEATURES], task.support[0, s])
        assert support[0, s, FEATURES:].argmax() == task.support_labels[0, s]
        assert support[0, s, FEATURES:].sum() == 1
    assert (query[..., FEATURES:] == 0).all()
    order = torch.arange(WAYS * SHOTS - 1, -1, -1)
    before = method.predict(task).log_probs
    swapped = replace(task, support_labels=task.support_labels.roll(1, 1))
    assert not torch.allclose(method.predict(swapped).log_probs, before, atol=1e-3)
    turned = replace(task, support=task.support[:, order], support_labels=task.support_labels[:, order])
    assert not torch.allclose(method.predict(turned).log_probs, before, atol=1e-6)  # order matters, as declared
    assert not method.card.support_order_invariant


def test_attention_shares_out_one_over_the_past_and_itself():
    block = AttentionBlock(FEATURES, 8, FEATURES).double()
    torch.nn.init.eye_(block.value.weight)
    torch.nn.init.zeros_(block.value.bias)
    ones = torch.ones(1, 5, FEATURES).double()
    for part in block(ones * torch.randn(1, 5, 1).double().exp().sign(), ones[:, :2]):
        torch.testing.assert_close(part[..., FEATURES:], part[..., :FEATURES])  # a mean of ones is one
    _, alone = block(torch.randn(1, 5, FEATURES).double(), ones[:, :1])
    order = torch.randperm(5)
    support = torch.randn(1, 5, FEATURES).double()
    torch.testing.assert_close(block(support[:, order], ones[:, :1])[1], block(support, ones[:, :1])[1])
    assert not torch.allclose(alone, block(support, ones[:, :1])[1])


def test_fewer_ways_leave_columns_out_and_more_are_refused():
    method = build()
    assert method.predict(episode(ways=2)).log_probs.shape == (2, 4, 2)
    with pytest.raises(EngramError, match=r"knows 3 labels .* but the task has 4 classes"):
        method.predict(episode(ways=4))
    with pytest.raises(EngramError, match=r"up to 4 steps .* but the task has 7"):
        build(n_shot=1).predict(episode())


@pytest.mark.parametrize(("settings", "told"), [({"n_way": 1}, "n_way = 1 .* least 2"), ({"n_shot": 0}, "n_shot = 0")])
def test_settings_that_cannot_be_are_told(settings, told):
    with pytest.raises(EngramError, match=told):
        build(**settings)
