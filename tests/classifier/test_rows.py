"""Blocks that are read as one tensor."""

from __future__ import annotations

import torch

from engram.classifier import rows
from engram.classifier.rows import Rows


def test_rows_are_those_of_the_joined_blocks() -> None:
    whole = torch.arange(24.0).reshape(12, 2)
    parts = Rows((whole[:5], whole[5:6], whole[6:]))
    chosen = torch.tensor([11, 0, 5, 5, 4, 6])
    assert len(parts) == 12 and parts.shape == (12, 2) and parts.dtype == torch.float32
    for one in (parts, Rows((whole,))):
        assert torch.equal(one[chosen], whole[chosen]) and torch.equal(one[whole[:, 0] > 9], whole[whole[:, 0] > 9])
        assert torch.equal(one[3:8], whole[3:8]) and torch.equal(one[:], whole)


def test_more_rows_take_the_type_of_the_others_and_join_the_last_block(monkeypatch) -> None:
    monkeypatch.setattr(rows, "SMALL", 3)
    grown = Rows((torch.zeros(4, 2, dtype=torch.float16),))
    for value in (1.0, 2.0, 3.0, 1e9):
        grown = grown.joined(torch.full((2, 2), value))
    assert [len(block) for block in grown.blocks] == [4, 4, 4] and grown.dtype == torch.float16
    assert grown[:][:, 0].tolist() == [0.0] * 4 + [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 65504.0, 65504.0]
