"""Exact probes: a change that should not matter, on a handful of streams, and the largest change of a probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from engram.probes.asking import (
    Asker,
    compare,
    cyclic_order,
    most_precise,
    relabelled,
    roll_history,
    with_query_order,
    with_support_order,
)
from engram.probes.catalogue import PROBES, Finding
from engram.types import Episode, MethodCard

NO_MEMORY = "declares no memory, and none was found"
ONE_TASK = "a stream of one task has no past"


@dataclass(frozen=True)
class Streams:
    """A few streams, as many unrelated ones of the same shape, and the answers to the first."""

    asker: Asker
    episodes: tuple[Episode, ...]
    others: tuple[Episode, ...]
    whole: Tensor
    """answers over the stream (draws, T, B, Q, n_way)"""
    first: Tensor
    """answers to the first task asked by itself, its past empty (draws, 1, B, Q, n_way)"""
    generator: torch.Generator

    @classmethod
    def build(
        cls, asker: Asker, episodes: Sequence[Episode], others: Sequence[Episode], generator: torch.Generator
    ) -> Streams:
        asker = most_precise(asker, episodes)
        whole, first = asker.ask(episodes), asker.ask(episodes[:1])
        return cls(asker, tuple(episodes), tuple(others), whole, first, generator)

    @property
    def card(self) -> MethodCard:
        return self.asker.method.card

    @property
    def n_tasks(self) -> int:
        return len(self.episodes[0].query)

    def query_order(self) -> Tensor:
        return cyclic_order(self.n_tasks, self.episodes[0].query.shape[1], self.generator)

    def support_order(self) -> Tensor:
        return cyclic_order(self.n_tasks, self.episodes[0].support.shape[1], self.generator)

    def judge(self, name: str, before: Tensor, after: Tensor, tolerance: float | None = None) -> Finding:
        effect, bound = compare(before, after, self.asker.tolerance if tolerance is None else tolerance)
        detail = f"mean change {float((before.mean(0) - after.mean(0)).abs().mean()):.1e}"
        detail += "" if self.asker.double else ", float32"
        stochastic = self.card.stochastic
        if stochastic:
            detail += f", means of {self.asker.draws} draws, permutation test"
        return PROBES[name].found(self.card, effect, bound, detail, "statistical" if stochastic else "exact")


def exact_findings(streams: Streams) -> list[Finding]:
    """All exact probes, in the order of `PROBES`."""
    erased = history_erased(streams)
    # A method that denies its memory but has one is put to every question about it.
    remembers = erased.verdict != "not applicable"
    return [
        repeat(streams),
        query_order(streams),
        *_of_memory(streams, remembers, "query order, earlier tasks"),
        query_slots_alike(streams),
        support_order(streams),
        class_relabelling(streams),
        company(streams),
        other_tasks(streams),
        later_tasks(streams),
        hidden_labels(streams),
        erased,
        *_of_memory(streams, remembers, "history permuted"),
        *_of_memory(streams, remembers, "history foreign"),
    ]


def _of_memory(streams: Streams, remembers: bool, name: str) -> list[Finding]:
    if not remembers:
        return [PROBES[name].not_applicable(streams.card, ONE_TASK if len(streams.episodes) < 2 else NO_MEMORY)]
    if name == "history foreign":
        return [history_foreign(streams)]
    return [past_reordered(streams, name, supports_too=name == "history permuted")]


def repeat(streams: Streams) -> Finding:
    """The same stream again with another seed: finds undeclared sampling and state kept between calls."""
    before = streams.whole[:1]
    after = streams.asker.ask(streams.episodes, arm=1)[:1]
    effect = float((before - after).abs().max())
    return PROBES["repeat"].found(streams.card, effect, streams.asker.tolerance, "two evaluations with different seeds")


def query_order(streams: Streams) -> Finding:
    """One task, its queries in another order, the answers put back."""
    order = streams.query_order()
    after = streams.asker.ask([with_query_order(streams.episodes[0], order)], arm=1)
    return streams.judge("query order", _reordered(streams.first, order), after)


def past_reordered(streams: Streams, name: str, supports_too: bool) -> Finding:
    """The past run again with its slots in other orders, each task its own; the last task is untouched."""
    past = [with_query_order(e, streams.query_order()) for e in streams.episodes[:-1]]
    if supports_too:
        past = [with_support_order(e, streams.support_order()) for e in past]
    after = streams.asker.ask([*past, streams.episodes[-1]], arm=1)
    return streams.judge(name, streams.whole[:, -1], after[:, -1])


def query_slots_alike(streams: Streams) -> Finding:
    """The same new order of the queries in every task of a stream, the answers put back."""
    order = streams.query_order()
    after = streams.asker.ask([with_query_order(e, order) for e in streams.episodes], arm=1)
    return streams.judge("query order, all tasks alike", _reordered(streams.whole, order), after)


def support_order(streams: Streams) -> Finding:
    """One task without a past; what supports do to a past is asked by "history permuted"."""
    after = streams.asker.ask([with_support_order(streams.episodes[0], streams.support_order())], arm=1)
    return streams.judge("support order", streams.first, after)


def class_relabelling(streams: Streams) -> Finding:
    """New numbers for the classes, drawn for each task of the stream, the answers renamed back."""
    n_way = streams.episodes[0].n_way
    new = [cyclic_order(streams.n_tasks, n_way, streams.generator) for _ in streams.episodes]
    after = streams.asker.ask([relabelled(e, n) for e, n in zip(streams.episodes, new, strict=True)], arm=1)
    columns = torch.stack(new)[None, :, :, None, :].expand_as(after)
    return streams.judge("class relabelling", streams.whole, after.gather(-1, columns))


def company(streams: Streams) -> Finding:
    """Each query of the first task asked alone."""
    episode = streams.episodes[0]
    alone = [replace(episode, query=episode.query[:, q : q + 1]) for q in range(episode.query.shape[1])]
    after = torch.cat([streams.asker.ask([e], arm=1) for e in alone], 3)
    return streams.judge("company", streams.first, after)


def other_tasks(streams: Streams) -> Finding:
    """The first stream of the batch: its neighbours exchanged for others, and then taken away."""
    exchanged = [_first_of(e, o) for e, o in zip(streams.episodes, streams.others, strict=True)]
    alone = [e.part(slice(0, 1)) for e in streams.episodes]
    afters = [streams.asker.ask(episodes, arm=1)[:, :, :1] for episodes in (exchanged, alone)]
    findings = [streams.judge("other tasks of the batch", streams.whole[:, :, :1], after) for after in afters]
    return max(findings, key=lambda f: (f.effect or 0.0) - (f.bound or 0.0))


def later_tasks(streams: Streams) -> Finding:
    """The second half of the stream exchanged: equal shapes, so the first half must not move at all."""
    half = len(streams.episodes) // 2
    if not half:
        return PROBES["later tasks"].not_applicable(streams.card, "a stream of one task has no later tasks")
    after = streams.asker.ask([*streams.episodes[:half], *streams.others[half:]], arm=1)
    on_cpu = streams.episodes[0].query.device.type == "cpu"  # a GPU may add up in another order from call to call
    tolerance = 0.0 if on_cpu else streams.asker.tolerance
    return streams.judge("later tasks", streams.whole[:, :half], after[:, :half], tolerance)


def hidden_labels(streams: Streams) -> Finding:
    """The labels of unlabelled supports, where tasks carry them, exchanged for other ones."""
    probe = PROBES["hidden labels"]
    if all(e.hidden_labels is None or bool((e.support_labels >= 0).all()) for e in streams.episodes):
        return probe.not_applicable(streams.card, "no task carries the label of an unlabelled support")
    after = streams.asker.ask([_other_hidden_labels(e, streams.generator) for e in streams.episodes], arm=1)
    return streams.judge(probe.name, streams.whole, after)


def _other_hidden_labels(episode: Episode, generator: torch.Generator) -> Episode:
    """Every hidden label moved on by 1 to n_way - 1 classes."""
    assert episode.hidden_labels is not None
    steps = torch.randint(1, episode.n_way, episode.hidden_labels.shape, generator=generator)
    moved = (episode.hidden_labels + steps.to(episode.hidden_labels.device)) % episode.n_way
    known = episode.support_labels >= 0
    return replace(episode, hidden_labels=torch.where(known, episode.hidden_labels, moved))


def history_erased(streams: Streams) -> Finding:
    """The last task with its past and without."""
    probe = PROBES["history erased"]
    if len(streams.episodes) < 2:
        return probe.not_applicable(streams.card, ONE_TASK)
    after = streams.asker.ask(streams.episodes[-1:], arm=1)
    finding = streams.judge(probe.name, streams.whole[:, -1:], after)
    if finding.depends or streams.card.continual:
        return finding
    return probe.not_applicable(streams.card, NO_MEMORY)


def history_foreign(streams: Streams) -> Finding:
    """The last task with its own past and with that of the next stream in the batch."""
    probe = PROBES["history foreign"]
    torch.manual_seed(streams.asker.seed)
    past = streams.asker.sequence(streams.episodes[:-1])[-1].history
    foreign = roll_history(past, streams.n_tasks)
    if not past or foreign is None:
        return probe.not_applicable(streams.card, "no history was handed out that could be exchanged between streams")
    before = streams.asker.ask(streams.episodes[-1:], past)
    after = streams.asker.ask(streams.episodes[-1:], foreign, arm=1)
    return streams.judge(probe.name, before, after)


def _reordered(answers: Tensor, order: Tensor) -> Tensor:
    """Answers (draws, T, B, Q, n_way) with the queries in the order (B, Q)."""
    return answers.gather(3, order[None, None, :, :, None].expand_as(answers))


def _first_of(episode: Episode, other: Episode) -> Episode:
    """The first task of one batch with the remaining tasks of another."""
    parts = {f.name: (getattr(episode, f.name), getattr(other, f.name)) for f in fields(episode)}
    tensors = {name: pair for name, pair in parts.items() if isinstance(pair[0], Tensor)}
    mixed: dict[str, Any] = {name: torch.cat([own[:1], rest[1:]]) for name, (own, rest) in tensors.items()}
    return replace(episode, **mixed)
