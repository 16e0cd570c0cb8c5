"""Evidence from the past by loops that look at one picture and one entry at a time, to compare `EvidenceGraph` with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from engram.nn.evidence import EvidenceGraph, Reading, Task
from engram.nn.memory_bank import CLASS, CLASS_QUERIES, CLASS_SUPPORTS, PICTURE


@dataclass(frozen=True)
class Remembered:
    vector: np.ndarray
    weight: float
    name: int
    kind: int
    step: int


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def softmax(values: list[float]) -> np.ndarray:
    powers = np.exp(np.array(values) - max(values))
    return powers / powers.sum()


def choice(vector: np.ndarray, states: list[np.ndarray], sharpness: float, refusal: float | None = None) -> np.ndarray:
    cosines = [float(vector @ unit(state)) for state in states]
    return softmax([sharpness * c for c in (cosines if refusal is None else [*cosines, refusal])])


def with_queries(
    model: EvidenceGraph, queries: list[np.ndarray], sums: list[np.ndarray], counts: list[float]
) -> tuple[list[np.ndarray], list[float]]:
    """Classes with the queries of their task, one query at a time in each round."""
    whole, pictures = list(sums), list(counts)
    for _ in range(model.n_layers):
        shares = [model.reading.query * choice(q, whole, model.reading.sharpness) for q in queries]
        whole = [sums[c] + sum(s[c] * q for s, q in zip(shares, queries, strict=True)) for c in range(len(sums))]
        pictures = [counts[c] + sum(float(s[c]) for s in shares) for c in range(len(sums))]
    return whole, pictures


@dataclass(frozen=True)
class Step:
    """One task of one stream, as its pictures are seen: unit vectors, one after the other."""

    supports: list[np.ndarray]
    queries: list[np.ndarray]
    labels: list[int]
    names: list[int] | None
    n_way: int
    seen: list[Remembered]
    refusal: float

    @property
    def pictures(self) -> list[np.ndarray]:
        return self.supports + self.queries

    @property
    def sums(self) -> list[np.ndarray]:
        return [sum(s for s, k in zip(self.supports, self.labels, strict=True) if k == c) for c in range(self.n_way)]

    @property
    def counts(self) -> list[float]:
        return [float(self.labels.count(c)) for c in range(self.n_way)]


def step_of(model: EvidenceGraph, task: Task, t: int, b: int, memory: list[Remembered], capacity: int) -> Step:
    metric, centre = model.metric.weight.detach().double().numpy(), model.centre.detach().double().numpy()
    supports, queries = (
        [unit(metric @ (picture - centre)) for picture in part[t, b].double().numpy()]
        for part in (task.support, task.query)
    )
    names, reading = None if task.names is None else task.names[t, b].tolist(), model.reading
    per_step = len(supports + queries) if names is None else 2 * task.n_way
    per_step = task.n_way if names is None and reading.together else per_step
    seen = [e for e in memory if t - e.step <= capacity // per_step]
    refusal = reading.refusal + reading.crowd * np.log(max(1, len(seen))) / (2 * reading.sharpness)
    return Step(supports, queries, task.labels[t, b].tolist(), names, task.n_way, seen, refusal)


def moved(step: Step, reading: Reading) -> Step:
    """Every picture a little towards those of the past that it looks like."""
    found = [
        sum(e.vector / (1 + np.exp(-2 * reading.sharpness * (float(v @ e.vector) - step.refusal))) for e in step.seen)
        for v in step.pictures
    ]
    pictures = [unit(v + reading.node * unit(r)) for v, r in zip(step.pictures, found, strict=True)]
    return replace(step, supports=pictures[: len(step.supports)], queries=pictures[len(step.supports) :])


def with_past(step: Step, kind: int, share: float, known: list[np.ndarray], worth: list[float]) -> None:
    """Add what is remembered of the names of the task."""
    for e in step.seen:
        if step.names is not None and e.name in step.names and e.kind == kind:
            known[step.names.index(e.name)] = known[step.names.index(e.name)] + share * e.weight * e.vector
            worth[step.names.index(e.name)] += share * e.weight


def by_class(model: EvidenceGraph, step: Step) -> tuple[list[np.ndarray], list[float]]:
    """Remembered classes join those of the task whole: states and evidence."""
    reading, ways = model.reading, range(step.n_way)
    whole = with_queries(model, step.queries, step.sums, step.counts)
    start, behind = whole if model.transductive else (step.sums, step.counts)
    shares = [e.weight * choice(e.vector, start, 2 * reading.sharpness, step.refusal) for e in step.seen]
    joined = [sum(s[c] * e.vector for s, e in zip(shares, step.seen, strict=True)) for c in ways]
    share = [reading.past_picture * sum(float(s[c]) for s in shares) for c in ways]
    state = [(start[c] + reading.past_picture * joined[c]) / (behind[c] + share[c]) for c in ways]
    return state, [step.counts[c] + share[c] for c in ways]


def in_rounds(
    model: EvidenceGraph, step: Step, known: list[np.ndarray], worth: list[float]
) -> tuple[list[np.ndarray], list[float]]:
    """Queries, and pictures of the past without names, join the classes round by round: states and evidence."""
    reading, ways = model.reading, range(step.n_way)
    state, evidence = [k / w for k, w in zip(known, worth, strict=True)], list(worth)
    for _ in range(model.n_layers):
        gathered, evidence, company = list(known), list(worth), [0.0] * step.n_way
        for q in step.queries if model.transductive else []:
            for c, share in enumerate(choice(q, state, reading.sharpness)):
                gathered[c] = gathered[c] + reading.query * share * q
                company[c] += reading.query * share
        for e in step.seen if step.names is None else []:
            shares = choice(e.vector, state, 2 * reading.sharpness, step.refusal)
            for c in ways:
                gathered[c] = gathered[c] + reading.past_picture * shares[c] * e.vector
                evidence[c] += reading.past_picture * shares[c]
        state = [gathered[c] / (evidence[c] + company[c]) for c in ways]
    return state, evidence


def kept(model: EvidenceGraph, step: Step, then: list[np.ndarray], t: int) -> list[Remembered]:
    """What is remembered of a task: its classes, its pictures, or by name its supports and its answered queries."""
    if step.names is None and model.reading.together:
        whole, size = with_queries(model, step.queries, step.sums, step.counts)
        return [Remembered(unit(whole[c]), size[c], -1, CLASS, t) for c in range(step.n_way)]
    if step.names is None:
        return [Remembered(picture, 1.0, -1, PICTURE, t) for picture in step.pictures]
    made = []
    for c, name in enumerate(step.names):
        shares = [float(choice(q, then, model.reading.sharpness)[c]) for q in step.queries]
        answered = sum(s * q for s, q in zip(shares, step.queries, strict=True))
        made.append(Remembered(step.sums[c] / step.counts[c], step.counts[c], name, CLASS_SUPPORTS, t))
        made.append(Remembered(answered / sum(shares), sum(shares), name, CLASS_QUERIES, t))
    return made


def slow(model: EvidenceGraph, task: Task, b: int, capacity: int) -> list[tuple[np.ndarray, list[float]]]:
    """One stream, one step after another, one picture and one entry at a time: means (Q, N) and evidence of classes."""
    scale, bias, reading = float(model.log_scale.exp()), float(model.bias), model.reading
    memory: list[Remembered] = []
    answers = []
    for t in range(len(task.support)):
        step = step_of(model, task, t, b, memory, capacity)
        as_seen = step
        if step.names is None and step.seen:
            step = moved(step, reading)
        known, worth = list(step.sums), list(step.counts)
        with_past(step, CLASS_SUPPORTS, 1.0, known, worth)
        then = with_queries(model, step.queries, known, worth)[0] if reading.together else list(known)
        with_past(step, CLASS_QUERIES, reading.past_query, known, worth)  # as they were answered
        by_classes = step.names is None and reading.together
        state, evidence = by_class(model, step) if by_classes else in_rounds(model, step, known, worth)
        answers.append((np.array([[scale * float(q @ unit(h)) + bias for h in state] for q in step.queries]), evidence))
        memory += kept(model, as_seen, then, t)
    return answers
