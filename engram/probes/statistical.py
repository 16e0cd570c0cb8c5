"""Statistical probes: differences of accuracy over many independent streams, judged at the level `ALPHA`.

The unit is the stream (or the single task), as answers inside one are correlated. An interval is simultaneous over the
comparisons its probe makes, so "the interval excludes zero" and "the verdict is not clean" are one statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Literal

import numpy as np
import torch

from engram.data.episodes import TaskList, episodes_at, frozen_tasks
from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.metrics import Outcomes
from engram.probes.asking import (
    ALPHA,
    Asker,
    noise_like,
    random_order,
    reorder,
    roll_history,
    with_query_order,
    with_support_order,
)
from engram.probes.catalogue import PROBES, Finding
from engram.processes import ALL, Share, chained
from engram.protocol import Protocol
from engram.types import Answers, Episode, MethodCard, Prediction

SlotOrder = Literal["shuffled", "class-order"]
ORDERS: tuple[SlotOrder, ...] = ("class-order", "shuffled")
IMAGES_AT_ONCE = 2048
MANY_QUERIES = 15
TASKS_PER_SEQUENCE = 4
"""single tasks asked for each stream of the audit, in the probe that needs no stream"""


@dataclass(frozen=True)
class Bench:
    """What the statistical probes ask with; ``protocol`` lists its slots in class order, ``share`` is of `chunks`."""

    asker: Asker
    store: Store
    protocol: Protocol
    device: torch.device | str
    train_order: SlotOrder
    share: Share = ALL

    @property
    def card(self) -> MethodCard:
        return self.asker.method.card


@dataclass
class Arms:
    """Correctness (streams, T) of the same streams asked in several ways."""

    real: dict[str, list[np.ndarray]] = field(default_factory=lambda: {order: [] for order in ORDERS})
    noise: dict[str, list[np.ndarray]] = field(default_factory=lambda: {order: [] for order in ORDERS})
    erased: list[np.ndarray] = field(default_factory=list)
    foreign: list[np.ndarray] = field(default_factory=list)


def half_width(values: np.ndarray, comparisons: int = 1) -> float:
    """t s / sqrt(n) at level ALPHA over all comparisons; t from the normal quantile by Cornish and Fisher's series."""
    n = len(values)
    z, freedom = NormalDist().inv_cdf(1 - ALPHA / (2 * comparisons)), n - 1
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return float(t * values.std(ddof=1) / np.sqrt(n))


def statistical_findings(bench: Bench) -> list[Finding]:
    """All statistical probes, in the order of `PROBES`."""
    arms = ask_streams(bench)
    return [
        *(noise_task(bench, order, np.concatenate(arms.noise[order])) for order in ORDERS),
        class_order_gain(bench, arms),
        class_balance(bench),
        number_of_queries(bench),
        *memory_findings(bench, arms),
    ]


def ask_streams(bench: Bench) -> Arms:
    """The same streams in class order and shuffled; after each of their tasks, a task of noise with the past so far."""
    arms = Arms()
    generator = torch.Generator().manual_seed(bench.protocol.seed)
    images = bench.store.images[:4096].float()
    spread = (float(images.mean()), float(images.std()))
    pieces = chunks(frozen_tasks(bench.store, bench.protocol))
    own = range(len(pieces))[bench.share.of(len(pieces))]
    for number, tasks in enumerate(pieces):
        listed = episodes_at(bench.store, tasks, bench.protocol.n_way, bench.device)
        streams = {"class-order": listed, "shuffled": shuffled(*listed, generator)}
        for order, (episodes, answers) in streams.items():
            blank = [_noise_task(e, generator, spread) for e in episodes]
            if number not in own:  # drawn all the same: the next piece goes on with the generator
                continue
            predictions = bench.asker.sequence(episodes)
            arms.real[order].append(correctness(predictions, answers))
            pasts = [(), *(p.history for p in predictions[:-1])]
            steps = [bench.asker.sequence([e], past)[0] for e, past in zip(blank, pasts, strict=True)]
            arms.noise[order].append(correctness(steps, answers))
            if order == bench.train_order and bench.card.continual and len(episodes) > 1:
                foreign = roll_history(pasts[-1], tasks.n_sequences)
                arms.erased.append(correctness(bench.asker.sequence(episodes[-1:]), answers[-1:])[:, 0])
                if foreign is not None:
                    arms.foreign.append(correctness(bench.asker.sequence(episodes[-1:], foreign), answers[-1:])[:, 0])
    real, noise = ({o: chained(a, bench.share) for o, a in arm.items()} for arm in (arms.real, arms.noise))
    return Arms(real, noise, chained(arms.erased, bench.share), chained(arms.foreign, bench.share))


def noise_task(bench: Bench, order: SlotOrder, correct: np.ndarray) -> Finding:
    """Accuracy on noise minus 1 / n_way where it stands out most: at one position, or over all that have a past.

    The past is real: in a stream of noise alone nothing ties a query's slot to a class, so no memory could leak.
    """
    chance = 1 / bench.protocol.n_way
    excess = correct - chance
    columns = list(excess.T) + ([excess[:, 1:].mean(1)] if excess.shape[1] > 1 else [])
    effects = [_rounded(column.mean()) for column in columns]
    bounds = [half_width(column, len(columns)) for column in columns]
    worst = max(range(len(columns)), key=lambda n: abs(effects[n]) / (bounds[n] + 1e-9))
    where = f"task {worst + 1}" if worst < excess.shape[1] else "all tasks with a past"
    by_position = " ".join(f"{100 * (e + chance):.0f}" for e in effects[: excess.shape[1]])
    detail = f"{where}; accuracy on noise by position, %: {by_position}; chance {100 * chance:.0f}"
    return PROBES[f"noise, {order.replace('-', ' ')}"].found(bench.card, effects[worst], bounds[worst], detail)


def class_order_gain(bench: Bench, arms: Arms) -> Finding:
    """Paired: the same images, only the order of the slots differs."""
    ordered, mixed = (np.concatenate(arms.real[order]) for order in ORDERS)
    detail = f"class order {_percent(ordered)}, shuffled {_percent(mixed)}, last task {_percent(ordered[:, -1])} "
    detail += f"and {_percent(mixed[:, -1])}"
    return _difference(bench, "class order minus shuffled", ordered.mean(1), mixed.mean(1), detail)


def class_balance(bench: Bench) -> Finding:
    """Dirichlet-unbalanced minus balanced queries: the same classes task by task, no past."""
    count = TASKS_PER_SEQUENCE * bench.protocol.n_sequences
    balanced = replace(bench.protocol, stream_length=1, n_sequences=count, slot_order="shuffled")
    name = "class balance"
    try:
        uneven = _single_tasks(bench, frozen_tasks(bench.store, replace(balanced, query_balance="dirichlet")))
    except EngramError as error:
        return PROBES[name].not_applicable(bench.card, str(error))
    even = _single_tasks(bench, frozen_tasks(bench.store, balanced))
    detail = f"Dirichlet {balanced.dirichlet_alpha:g} {_percent(uneven)}, balanced {_percent(even)}, {count} tasks"
    return _difference(bench, name, uneven, even, detail)


def number_of_queries(bench: Bench) -> Finding:
    """The first query of each class, asked among one per class and among many: paired on the same queries."""
    name, n_way = "number of queries", bench.protocol.n_way
    many = min(MANY_QUERIES, int(bench.store.group_counts.min()) - bench.protocol.n_shot)
    if many < 2:
        return PROBES[name].not_applicable(bench.card, "the store has one query per class at most")
    tasks = frozen_tasks(bench.store, replace(bench.protocol, stream_length=1, n_query=many))
    first = slice(None, None, many)  # in class order the queries of a class stand together
    few = replace(tasks, query_rows=tasks.query_rows[..., first], query_labels=tasks.query_labels[..., first])
    alone, among = _single_tasks(bench, few), _single_tasks(bench, tasks, first)
    detail = f"1 per class {_percent(alone)}, {many} per class {_percent(among)}, the same {n_way} queries"
    return _difference(bench, name, alone, among, detail)


def memory_findings(bench: Bench, arms: Arms) -> list[Finding]:
    """Informative: what the past is worth on the last task, in the order the method was trained in."""
    gain, own = PROBES["gain from the past"], PROBES["own past against foreign"]
    if not arms.erased:
        why = "declares no memory" if not bench.card.continual else "a stream of one task has no past"
        return [probe.not_applicable(bench.card, why) for probe in (gain, own)]
    last = np.concatenate(arms.real[bench.train_order])[:, -1]
    erased = np.concatenate(arms.erased)
    where = f"last of {bench.protocol.stream_length} tasks, {bench.train_order}"
    findings = [
        _difference(bench, gain.name, last, erased, f"with {_percent(last)}, without {_percent(erased)}; {where}")
    ]
    if not arms.foreign:
        return [*findings, own.not_applicable(bench.card, "the history cannot be exchanged between streams")]
    foreign = np.concatenate(arms.foreign)
    detail = f"own {_percent(last)}, foreign {_percent(foreign)}; {where}"
    return [*findings, _difference(bench, own.name, last, foreign, detail)]


def _difference(bench: Bench, name: str, first: np.ndarray, second: np.ndarray, detail: str) -> Finding:
    difference = first - second
    return PROBES[name].found(bench.card, _rounded(difference.mean()), half_width(difference), detail)


def _single_tasks(bench: Bench, tasks: TaskList, queries: slice = slice(None)) -> np.ndarray:
    """Accuracy of each single task on the queries asked for: (tasks,)."""
    parts, pieces = [], chunks(tasks)
    for part in pieces[bench.share.of(len(pieces))]:
        episodes, answers = episodes_at(bench.store, part, bench.protocol.n_way, bench.device)
        parts.append(correctness(bench.asker.sequence(episodes), answers, queries)[:, 0])
    return np.concatenate(chained(parts, bench.share))


def chunks(tasks: TaskList) -> list[TaskList]:
    """Pieces of nearly equal size, two streams or more each, so that pasts can be exchanged inside a piece."""
    images = tasks.support_rows[0].size + tasks.query_rows[0].size
    count = max(1, min(tasks.n_sequences // 2, -(-tasks.n_sequences * images // IMAGES_AT_ONCE)))
    edges = np.linspace(0, tasks.n_sequences, count + 1).astype(int)
    return [tasks.slice(slice(a, b)) for a, b in pairwise(edges)]


def shuffled(
    episodes: Sequence[Episode], answers: Sequence[Answers], generator: torch.Generator
) -> tuple[tuple[Episode, ...], tuple[Answers, ...]]:
    """The same tasks with supports and queries in random order."""
    new_episodes, new_answers = [], []
    for episode, answer in zip(episodes, answers, strict=True):
        supports = random_order(episode.support_labels, generator)
        queries = random_order(answer.query_labels, generator)
        new_episodes.append(with_query_order(with_support_order(episode, supports), queries))
        new_answers.append(replace(answer, query_labels=reorder(answer.query_labels, queries)))
    return tuple(new_episodes), tuple(new_answers)


def correctness(
    predictions: Sequence[Prediction], answers: Sequence[Answers], queries: slice = slice(None)
) -> np.ndarray:
    """(B, T) share of right answers. Probabilities equal to six digits are a tie: rounding must not pick a slot."""
    probabilities = np.stack([p.log_probs.exp().float().cpu().numpy() for p in predictions], 1).round(6)
    labels = np.stack([a.query_labels.cpu().numpy() for a in answers], 1)
    return Outcomes(labels, probabilities).correct[..., queries].mean(-1)


def _noise_task(episode: Episode, generator: torch.Generator, spread: tuple[float, float]) -> Episode:
    return replace(
        episode,
        support=noise_like(episode.support, generator, spread),
        query=noise_like(episode.query, generator, spread),
    )


def _rounded(value: float) -> float:
    """Without the last digits, which are rounding: an exact zero must not look like an effect."""
    return round(float(value), 9)


def _percent(correct: np.ndarray) -> str:
    return f"{100 * float(correct.mean()):.1f} %"
