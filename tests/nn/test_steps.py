"""Steps of a stream that can be stacked, and names that are given to all tasks or to none."""

import pytest
import torch
from torch import nn

from engram.errors import EngramError
from engram.nn.steps import equal_shapes, slot_by_slot, stacked_names, stacked_task
from engram.types import Episode


def episode(n_query: int = 1, names: bool = False) -> Episode:
    labels = torch.tensor([[0, 1]])
    return Episode(torch.zeros(1, 2, 3), labels, torch.zeros(1, n_query, 3), 2, labels if names else None)


def test_only_neighbours_of_one_shape_go_together() -> None:
    runs = equal_shapes([episode(1), episode(1), episode(2), episode(1)])
    assert [[e.query.shape[1] for e in run] for run in runs] == [[1, 1], [2], [1]]


def test_names_are_stacked_or_absent_and_never_partly_there() -> None:
    assert stacked_names([episode(), episode()]) is None
    names = stacked_names([episode(names=True)] * 3)
    assert names is not None and names.shape == (3, 1, 2)
    with pytest.raises(EngramError, match="1 of 2 tasks of the stream are named: name all of them or none"):
        stacked_names([episode(), episode(names=True)])


def test_maps_of_features_become_vectors_in_float32_of_one_task() -> None:
    maps = torch.arange(24.0, dtype=torch.float64).reshape(1, 2, 3, 2, 2)
    steps = [Episode(maps + t, torch.tensor([[0, 1]]), maps[:, :1] - t, 2) for t in range(3)]
    task = stacked_task(steps)
    assert task.support.shape == (3, 1, 2, 12) and task.query.shape == (3, 1, 1, 12) and task.labels.shape == (3, 1, 2)
    assert task.support.dtype == torch.float32 and torch.equal(task.support[2, 0, 1], torch.arange(12.0) + 14)
    assert task.names is None and task.n_way == 2


def test_each_slot_of_all_tasks_is_one_call_and_keeps_its_place() -> None:
    steps = [Episode(torch.randn(4, 2, 3), torch.zeros(4, 2).long(), torch.randn(4, 5, 3), 2) for _ in range(3)]
    norm, calls = nn.BatchNorm1d(3), []

    def encode(images: torch.Tensor) -> torch.Tensor:
        calls.append(images)
        return norm(images)

    features = slot_by_slot(encode, steps)
    assert [len(call) for call in calls] == [3 * 4] * 7
    assert [tuple(part.shape) for step in features for part in (step.support, step.query)] == [(4, 2, 3), (4, 5, 3)] * 3
    third_query = torch.cat([step.query[:, 2] for step in steps])
    expected = (third_query - third_query.mean(0)) / (third_query.var(0, correction=0) + norm.eps).sqrt()
    torch.testing.assert_close(torch.cat([step.query[:, 2] for step in features]), expected)
    assert norm.num_batches_tracked == 7
