"""Shares of the work, and what a process that works alone tells itself."""

from __future__ import annotations

import pytest
import torch

from engram import processes
from engram.errors import EngramError
from engram.processes import ALL, LostProcessError, Share

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [0, 1, 6, 7])
def test_shares_are_the_whole_in_its_order(size: int) -> None:
    things = list(range(size))
    assert [thing for rank in range(3) for thing in things[Share(rank, 3).of(size)]] == things


def test_rows_of_a_share_lie_in_every_list() -> None:
    """Of lists of 4 and 2 things, two processes have two and one each."""
    assert ALL.rows([4, 2], CPU) is None
    first, second = (Share(rank, 2).rows([2, 1], CPU) for rank in range(2))
    assert first is not None and second is not None
    assert first.tolist() == [0, 1, 4] and second.tolist() == [2, 3, 5]


def test_a_process_alone_waits_for_nobody() -> None:
    number = torch.tensor(3)
    assert processes.is_first() and not processes.cut_graphs()
    assert processes.most(True, 2.5) == (True, 2.5)
    assert processes.gathered("x") == ["x"]
    assert processes.mean(number) is number
    processes.copy_from_first([number])
    with pytest.raises(EngramError, match="^as it is$") as raised, processes.agreed():
        raise EngramError("as it is")
    assert raised.value.__cause__ is None


def test_only_what_tells_of_another_is_a_lost_process() -> None:
    with pytest.raises(LostProcessError, match="another process of this run"), processes._heard():
        raise RuntimeError("[pair.cc] Connection closed by peer")
    with pytest.raises(RuntimeError, match="sizes differ"), processes._heard():
        raise RuntimeError("sizes differ")
