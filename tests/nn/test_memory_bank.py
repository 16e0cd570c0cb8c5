import pytest
import torch

from engram.errors import EngramError
from engram.nn import memory_bank
from engram.nn.memory_bank import MemoryBank, append, empty, keep, match, names_of, next_step, visible


def grown(capacity: int, sizes: list[int], batch: int = 2, width: int = 3) -> list[MemoryBank]:
    """Banks after each of the steps; entry i of step t holds 10 t + i."""
    banks = [empty(batch, width, "cpu")]
    for t, size in enumerate(sizes):
        values = (10 * t + torch.arange(size)).expand(batch, size)
        step = torch.full((batch,), t)
        banks.append(append(banks[-1], values[..., None].expand(-1, -1, width).float(), values, step, capacity))
    return banks[1:]


def test_whole_steps_are_forgotten_oldest_first() -> None:
    banks = grown(7, [3, 3, 2, 4])
    assert [b.names[0].tolist() for b in banks] == [
        [0, 1, 2],
        [0, 1, 2, 10, 11, 12],
        [10, 11, 12, 20, 21],
        [20, 21, 30, 31, 32, 33],
    ]
    assert banks[-1].step[1].tolist() == [2, 2, 3, 3, 3, 3]
    assert torch.equal(banks[-1].features[..., 0], banks[-1].names.float())


def test_streams_of_different_pasts_keep_their_own() -> None:
    bank = grown(10, [2, 2])[-1]
    short = keep(bank, torch.tensor([[True] * 4, [False, True, False, True]]))
    assert short.names.tolist() == [[0, 1, 10, 11], [-1, -1, 1, 11]] and short.step[1].tolist() == [-1, -1, 0, 1]
    assert not short.features[1, :2].any()
    grew = append(short, torch.ones(2, 2, 3), torch.full((2, 2), 20), next_step(short), 4)
    assert grew.names.tolist() == [[10, 11, 20, 20], [1, 11, 20, 20]]
    assert next_step(grew).tolist() == [3, 3] and next_step(empty(2, 3, "cpu")).tolist() == [0, 0]


@pytest.mark.parametrize("capacity", [4, 5, 7, 12, 100])
def test_the_window_of_all_readers_at_once_is_what_appending_leaves(capacity: int) -> None:
    sizes = [3, 1, 4, 2, 4, 4, 1]
    whole = grown(1000, sizes)[-1]
    seen = visible(whole.step, torch.arange(1, 8).expand(2, 7), capacity)
    for t, bank in enumerate(grown(capacity, sizes)):
        assert whole.names[0][seen[0, t]].tolist() == bank.names[0].tolist()
        assert len(bank.names[0]) <= capacity


def test_names_are_matched_and_missing_ones_never() -> None:
    bank = MemoryBank(torch.zeros(1, 4, 2), torch.tensor([[-1, 7, -1, 5]]), torch.tensor([[-1, 0, 1, 1]]))
    assert match(bank, torch.tensor([[5, 7, 9]]))[0].int().tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]]
    labels = torch.tensor([[1, -1, 0]])
    assert names_of(labels, torch.tensor([[8, 4]])).tolist() == [[4, -1, 8]]
    assert names_of(labels, None).tolist() == [[-1, -1, -1]]


def test_gradients_reach_what_is_remembered() -> None:
    features = torch.ones(1, 2, 3, requires_grad=True)
    bank = append(empty(1, 3, "cpu"), features, torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1).long(), 2)
    bank.features.sum().backward()
    assert torch.equal(features.grad, torch.ones(1, 2, 3))


@pytest.mark.parametrize(
    ("history", "sentence"),
    [
        ((torch.zeros(2, 1, 3),), "m keeps 3 tensors of 3, 2 and 2 axes but the history has 1 of \\[3\\]"),
        (tuple(empty(5, 3, "cpu")), "m was given 2 streams but a history of 5"),
        (tuple(empty(2, 8, "cpu")), "m remembers features of width 8 but the task's have 3"),
    ],
)
def test_a_history_that_does_not_fit_gets_one_sentence(history: tuple[torch.Tensor, ...], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        memory_bank.from_history(history, torch.zeros(2, 4, 3), "m")
