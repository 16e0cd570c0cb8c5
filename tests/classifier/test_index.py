"""The index finds what looking at all entries finds, and grows with them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engram.classifier import index
from engram.classifier.index import Rows


def clustered(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features around 30 points, and the number of the point."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(30, 24, generator=torch.Generator().manual_seed(9))
    labels = torch.randint(30, (count,), generator=generator)
    return points[labels] + 0.4 * torch.randn(count, 24, generator=generator), labels


def truly_nearest(items: Tensor, query: Tensor, count: int) -> set[int]:
    return set((F.normalize(items, dim=1) @ F.normalize(query, dim=0)).topk(count).indices.tolist())


def test_the_nearest_lists_hold_nearly_all_of_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "READ", 400)
    items, labels = clustered(4000)
    rows, made = Rows((items,)), index.build(Rows((items,)), labels, 30)
    assert made.order.sort().values.tolist() == list(range(4000)) and int(made.starts[-1]) == 4000
    queries, _ = clustered(50, 1)
    shares = [len(set(made.nearest(rows, q, 10).tolist()) & truly_nearest(items, q, 10)) / 10 for q in queries]
    assert sum(shares) / len(shares) > 0.95
    monkeypatch.setattr(index, "READ", 4000)
    assert all(set(made.nearest(rows, q, 10).tolist()) == truly_nearest(items, q, 10) for q in queries)


def test_what_came_later_is_found_at_once_and_put_into_lists_in_time() -> None:
    items, labels = clustered(1000)
    known = index.build(Rows((items[:900],)), labels[:900], 30)
    rows = Rows((items,))
    assert 950 in known.nearest(rows, items[950], 1).tolist()
    grown = index.current(known, rows, labels, 30)
    assert len(grown.order) == 1000 and torch.equal(grown.centres, known.centres)
    whole = index.build(rows, labels, 30)
    for made in (known, grown, whole):
        expected = torch.zeros(30, 24).index_add_(0, labels, items)
        assert torch.allclose(index.class_sums(made, rows, labels, 30), expected, atol=1e-3)
    assert index.current(grown, rows, labels, 30) is grown
    much, more = clustered(4000, 2)
    assert len(index.current(known, Rows((much,)), more, 30).centres) > len(known.centres), "outgrown: new centres"


def test_rows_are_those_of_the_joined_blocks() -> None:
    whole = torch.arange(24.0).reshape(12, 2)
    parts = Rows((whole[:5], whole[5:6], whole[6:]))
    chosen = torch.tensor([11, 0, 5, 5, 4, 6])
    assert len(parts) == 12 and parts.shape == (12, 2) and parts.dtype == torch.float32
    for one in (parts, Rows((whole,))):
        assert torch.equal(one[chosen], whole[chosen]) and torch.equal(one[whole[:, 0] > 9], whole[whole[:, 0] > 9])
        assert torch.equal(one[3:8], whole[3:8]) and torch.equal(one[:], whole)


def test_more_rows_take_the_type_of_the_others_and_join_the_last_block(monkeypatch) -> None:
    monkeypatch.setattr(index, "SMALL", 3)
    grown = Rows((torch.zeros(4, 2, dtype=torch.float16),))
    for value in (1.0, 2.0, 3.0, 1e9):
        grown = grown.joined(torch.full((2, 2), value))
    assert [len(block) for block in grown.blocks] == [4, 4, 4] and grown.dtype == torch.float16
    assert grown[:][:, 0].tolist() == [0.0] * 4 + [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 65504.0, 65504.0]
