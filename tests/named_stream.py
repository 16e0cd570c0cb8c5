"""Streams of features for the tests of methods that remember."""

from __future__ import annotations

from dataclasses import replace

import torch

from engram.types import Episode

WIDTH = 6


def stream(
    steps: int = 6, named: bool = True, n_way: int = 3, n_shot: int = 2, n_query: int = 2, pool: int = 5, seed: int = 0
) -> list[Episode]:
    """Two streams over a pool of five Gaussian classes, labels and slots drawn anew in every task."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(2, pool, WIDTH, generator=generator)
    episodes = []
    for _ in range(steps):
        names = torch.stack([torch.randperm(pool, generator=generator)[:n_way] for _ in range(2)])
        parts = []
        for count in (n_shot, n_query):
            labels = torch.arange(n_way).repeat(count)
            labels = torch.stack([labels[torch.randperm(len(labels), generator=generator)] for _ in range(2)])
            chosen = centres.gather(1, names.gather(1, labels)[..., None].expand(-1, -1, WIDTH))
            parts.append((chosen + torch.randn(chosen.shape, generator=generator), labels))
        (support, labels), (query, _) = parts
        episodes.append(Episode(support, labels, query, n_way, names if named else None))
    return episodes


def slots_permuted(episode: Episode, seed: int = 0) -> Episode:
    """The same task with its supports and queries in other slots."""
    generator = torch.Generator().manual_seed(seed)
    supports = torch.randperm(episode.support.shape[1], generator=generator)
    queries = torch.randperm(episode.query.shape[1], generator=generator)
    return replace(
        episode,
        support=episode.support[:, supports],
        support_labels=episode.support_labels[:, supports],
        query=episode.query[:, queries],
    )
