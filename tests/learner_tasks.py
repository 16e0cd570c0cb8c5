"""Two small tasks for methods that adapt a network to each: supports in shuffled order, queries of any class."""

from __future__ import annotations

import torch

from engram.types import Answers, Episode, TrainBatch

WAYS = 3


def episode(
    n_tasks: int = 2, shots: int = 2, queries: int = 4, dtype: torch.dtype = torch.float32
) -> tuple[Episode, Answers]:
    generator = torch.Generator().manual_seed(1)
    labels = torch.stack([torch.randperm(WAYS * shots, generator=generator) % WAYS for _ in range(n_tasks)])
    support, query = (
        torch.randn(n_tasks, n, 1, 16, 16, generator=generator).to(dtype) for n in (WAYS * shots, queries)
    )
    asked = torch.randint(0, WAYS, (n_tasks, queries), generator=generator)
    return Episode(support, labels, query, WAYS), Answers(asked, torch.zeros(n_tasks, WAYS).long())


def batch(steps: int = 1, queries: int = 4, dtype: torch.dtype = torch.float32) -> TrainBatch:
    given, answers = episode(queries=queries, dtype=dtype)
    return TrainBatch((given,) * steps, (answers,) * steps)
