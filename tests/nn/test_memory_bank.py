import pytest
import torch

from engram.errors import EngramError
from engram.nn import memory_bank
from engram.nn.memory_bank import (
    CLASS_QUERIES,
    CLASS_SUPPORTS,
    QUERY,
    SUPPORT,
    Bank,
    append,
    empty,
    histories,
    in_time,
    keep,
    made,
    match,
    names_of,
    next_step,
    visible,
)


def grown(capacity: int, sizes: list[int], batch: int = 2, width: int = 3) -> list[Bank]:
    """Banks after each of the steps; entry i of step t holds 10 t + i and weighs 1 + i."""
    banks = [empty(batch, width, "cpu")]
    for t, size in enumerate(sizes):
        values = (10 * t + torch.arange(size)).expand(batch, size)
        features, weights = values[..., None].expand(-1, -1, width).float(), (values - 10 * t + 1).float()
        entries = made(features, SUPPORT, torch.full((batch,), t), values, weights)
        banks.append(append(banks[-1], entries, capacity))
    return banks[1:]


def test_whole_steps_are_forgotten_oldest_first() -> None:
    banks = grown(7, [3, 3, 2, 4])
    assert [b.names[0].tolist() for b in banks] == [
        [0, 1, 2],
        [0, 1, 2, 10, 11, 12],
        [10, 11, 12, 20, 21],
        [20, 21, 30, 31, 32, 33],
    ]
    assert banks[-1].steps[1].tolist() == [2, 2, 3, 3, 3, 3]
    assert torch.equal(banks[-1].features[..., 0], banks[-1].names.float())
    assert torch.equal(banks[-1].weights, (banks[-1].names % 10 + 1).float()) and not banks[-1].kinds.any()


def test_streams_of_different_pasts_keep_their_own() -> None:
    bank = grown(10, [2, 2])[-1]
    short = keep(bank, torch.tensor([[True] * 4, [False, True, False, True]]))
    assert short.names.tolist() == [[0, 1, 10, 11], [-1, -1, 1, 11]] and short.steps[1].tolist() == [-1, -1, 0, 1]
    assert not short.features[1, :2].any() and not short.weights[1, :2].any()
    assert short.kinds.tolist() == [[SUPPORT] * 4, [-1, -1, SUPPORT, SUPPORT]]
    grew = append(short, made(torch.ones(2, 2, 3), SUPPORT, next_step(short), torch.full((2, 2), 20)), 4)
    assert grew.names.tolist() == [[10, 11, 20, 20], [1, 11, 20, 20]]
    assert next_step(grew).tolist() == [3, 3] and next_step(empty(2, 3, "cpu")).tolist() == [0, 0]


@pytest.mark.parametrize("capacity", [4, 5, 7, 12, 100])
def test_the_window_of_all_readers_at_once_is_what_appending_leaves(capacity: int) -> None:
    sizes = [3, 1, 4, 2, 4, 4, 1]
    whole = grown(1000, sizes)[-1]
    seen = visible(whole.steps, torch.arange(1, 8)[:, None].expand(7, 2), capacity)
    handed_on = histories(whole, torch.arange(7)[:, None].expand(7, 2), capacity)
    for t, bank in enumerate(grown(capacity, sizes)):
        assert whole.names[0][seen[t, 0]].tolist() == bank.names[0].tolist()
        assert len(bank.names[0]) <= capacity
        assert all(torch.equal(mine, expected) for mine, expected in zip(handed_on[t], bank, strict=True))


def test_a_reader_sees_neither_itself_nor_what_follows_nor_empty_places() -> None:
    steps = torch.tensor([[-1, 0, 0, 1, 2, 2], [3, 3, 4, 4, 5, 7]])
    found = visible(steps, torch.tensor([[1, 5], [2, 6]]), 3).int()
    assert found[:, 0].tolist() == [[0, 1, 1, 0, 0, 0], [0, 1, 1, 1, 0, 0]]
    assert found[:, 1].tolist() == [[0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0]]


def test_entries_of_many_steps_stand_in_the_order_of_time() -> None:
    features = torch.arange(12.0).view(3, 2, 2, 1)  # 3 steps, 2 streams, 2 entries
    now = torch.tensor([[4, 0], [5, 1], [6, 2]])
    bank = in_time(made(features, torch.tensor([CLASS_SUPPORTS, CLASS_QUERIES]), now))
    assert bank.features[..., 0].tolist() == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]
    assert bank.steps.tolist() == [[4, 4, 5, 5, 6, 6], [0, 0, 1, 1, 2, 2]]
    assert bank.kinds[0].tolist() == [CLASS_SUPPORTS, CLASS_QUERIES] * 3
    assert bank.names.tolist() == [[-1] * 6] * 2 and bank.weights.tolist() == [[1.0] * 6] * 2


def test_names_are_matched_and_missing_ones_never() -> None:
    steps = torch.tensor([[-1, 0, 1, 1]])
    bank = Bank(torch.zeros(1, 4, 2), torch.ones(1, 4), torch.tensor([[-1, 7, -1, 5]]), torch.zeros(1, 4), steps)
    assert match(bank, torch.tensor([[5, 7, 9]]))[0].int().tolist() == [[0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert match(bank, torch.tensor([[-1]]))[0, 0].tolist() == [False, False, True, False]  # an empty place has none
    labels = torch.tensor([[1, -1, 0]])
    assert names_of(labels, torch.tensor([[8, 4]])).tolist() == [[4, -1, 8]]
    assert names_of(labels, None).tolist() == [[-1, -1, -1]]


def test_gradients_reach_what_is_remembered() -> None:
    features = torch.ones(1, 2, 3, requires_grad=True)
    bank = append(empty(1, 3, "cpu"), made(features, SUPPORT, torch.zeros(1).long()), 2)
    bank.features.sum().backward()
    assert torch.equal(features.grad, torch.ones(1, 2, 3))


def remembered(batch: int = 2, width: int = 3, kind: int = SUPPORT) -> tuple[torch.Tensor, ...]:
    return tuple(made(torch.zeros(batch, 4, width), kind, torch.zeros(batch).long()))


@pytest.mark.parametrize(
    ("history", "sentence"),
    [
        ((torch.zeros(2, 1, 3),), r"m keeps 5 tensors of \[3, 2, 2, 2, 2\] axes but the history has 1 of \[3\]"),
        (remembered(batch=5), "m was given 2 streams but a history of 5"),
        (remembered(width=8), "m remembers features of width 8 but the task's have 3"),
        (remembered(kind=QUERY), "m remembers supports but the history holds queries: hand on the history of the same"),
    ],
)
def test_a_history_that_does_not_fit_gets_one_sentence(history: tuple[torch.Tensor, ...], sentence: str) -> None:
    with pytest.raises(EngramError, match=sentence):
        memory_bank.from_history(history, torch.zeros(2, 4, 3), None, "m", {SUPPORT})
