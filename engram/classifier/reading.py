"""Answers from more pictures than an engine can look at all at once: for each query a support of its own, made smaller.

An engine that compares a query with class means is given the means: those of all classes, or of the most alike. Any
other is given the nearest entries, which an index finds. Either way the answer is nearly that of the whole memory.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from engram.classifier.calibration import Calibration, stored
from engram.classifier.engine import Answer, Engine
from engram.classifier.memory import Memory
from engram.classifier.progress import watched

NEAREST = 256
"""entries that an engine is given"""
CANDIDATES, TIMES = 64, 16
"""classes compared, and how often each mean stands: as for so many pictures of a class, which is how sure one can be"""
ELSEWHERE = 1e-9
"""the most probable that a class can be that is no candidate"""


def answer(
    engine: Engine, memory: Memory, query: Tensor, samples: int, calibration: Calibration | None = None
) -> Answer:
    """As `Engine.answer`, for each query (Q, ...) alone; no edges, for each has a support of its own."""
    sure = calibration or stored(engine, len(memory.labels), len(memory.classes))
    if not len(query):
        return engine.answer(memory.items[:1], memory.labels[:1], query, len(memory.classes), samples, sure)
    found = [_one(engine, memory, one[0], samples, sure) for one in watched(query.split(1), len(query), "answers")]
    drawn = torch.cat([part.samples for part in found if part.samples is not None], 1) if samples else None
    log_probs, familiarity = (torch.cat([part[column] for part in found]) for column in (0, 2))  # type: ignore[misc]
    return Answer(log_probs, drawn, familiarity, None, sure)


def _one(engine: Engine, memory: Memory, query: Tensor, samples: int, sure: Calibration) -> Answer:
    support, owners = (class_means if engine.method.card.by_class_means else nearest_entries)(memory, query)
    classes, labels = owners.unique(return_inverse=True)
    seen = query[None]
    if engine.view:  # that of the memory, not of these few
        support, seen, engine = memory.view(support), memory.view(seen), replace(engine, view=False)
    small = engine.answer(support, labels, seen, len(classes), samples, sure)
    log_probs = small.log_probs.amin(1, keepdim=True).clamp(max=math.log(ELSEWHERE)).repeat(1, len(memory.classes))
    log_probs[:, classes] = small.log_probs
    drawn = None
    if small.samples is not None:
        drawn = torch.zeros(samples, 1, len(memory.classes))
        drawn[..., classes] = small.samples
    return Answer(log_probs.log_softmax(-1), drawn, small.familiarity, None, sure)


def looked_at(engine: Engine, memory: Memory, features: Tensor) -> Tensor:
    """Features (n, ...) as unit vectors (n, d), through the view of the memory where the engine has one."""
    return memory.view(features) if engine.view else F.normalize(features.flatten(1).float(), dim=-1)


def nearest(engine: Engine, memory: Memory, query: Tensor, count: int) -> Tensor:
    """Entries that queries (Q, ...) look most like, best first: (Q, at most ``count``)."""
    count = min(count, len(memory.labels))
    if not memory.exact:
        return torch.stack([memory.index.nearest(memory.rows, one.flatten(), count) for one in query])
    known = looked_at(engine, memory, memory.items[:])
    return (looked_at(engine, memory, query) @ known.T).topk(count).indices


def class_means(memory: Memory, query: Tensor) -> tuple[Tensor, Tensor]:
    """Means of the classes most like a query (...), each several times: supports (S, ...) and their classes (S,)."""
    classes = _ranked(memory, query)[:CANDIDATES].repeat_interleave(TIMES)
    return memory.means[classes].reshape(-1, *query.shape), classes


def nearest_entries(memory: Memory, query: Tensor) -> tuple[Tensor, Tensor]:
    """Entries nearest to a query (...): supports (S, ...) and their classes (S,), of which there are two at least."""
    rows = memory.index.nearest(memory.rows, query.flatten(), NEAREST)
    support, owners = memory.rows[rows].float(), memory.labels[rows]
    if bool((owners == owners[0]).all()):
        other = next(number for number in _ranked(memory, query)[:2].tolist() if number != owners[0])
        support = torch.cat([support, memory.means[other].reshape(1, *query.shape)])
        owners = torch.cat([owners, torch.tensor([other])])
    return support, owners


def _ranked(memory: Memory, query: Tensor) -> Tensor:
    """Numbers of the classes, those whose means are most like the query first: at most `CANDIDATES`."""
    return (F.normalize(memory.means, dim=1) @ query.flatten()).topk(min(CANDIDATES, len(memory.classes))).indices
