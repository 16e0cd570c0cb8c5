"""Tasks of random features or maps, for methods that are compared with something slower."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engram.types import Answers, Episode

WAYS, QUERIES = 3, 4


def random_task(
    shape: tuple[int, ...],
    n_tasks: int = 2,
    shots: int = 2,
    ways: int = WAYS,
    draw: Callable[..., Tensor] = torch.randn,
) -> tuple[Episode, Answers]:
    """``n_tasks`` tasks side by side of supports in any order and `QUERIES` queries of ``shape`` each."""
    labels = torch.stack([torch.randperm(ways * shots) % ways for _ in range(n_tasks)])
    support, query = draw(n_tasks, ways * shots, *shape), draw(n_tasks, QUERIES, *shape)
    answers = Answers(torch.randint(0, ways, (n_tasks, QUERIES)), torch.zeros(n_tasks, ways).long())
    return Episode(support, labels, query, ways), answers
