"""One method, one store, one protocol: ask the frozen questions and keep the answers."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from engram.data.episodes import TaskList, episodes_at, frozen_tasks
from engram.data.store import Store
from engram.data.streams import encounters, gaps, met_before, of_queries
from engram.errors import EngramError
from engram.evaluation.encode import encoded, looking
from engram.evaluation.metrics import Outcomes, stream_summary, summarise
from engram.evaluation.source import check_can_answer
from engram.ledger import Evaluation, write_tasks
from engram.processes import ALL, Share, chained
from engram.protocol import Protocol
from engram.types import Answers, Episode, History, Method, Prediction

MAX_IMAGES = {"cpu": 512, "cuda": 8192}
"""images handed to a method at once, by kind of device: on a CPU what its caches hold; results do not depend on it"""
SIDE_BY_SIDE = 8
"""streams that go together even where they are too long to go whole: one step at a time would waste the device"""


@dataclass(frozen=True, repr=False)
class Result:
    """One protocol answered by one model."""

    protocol: Protocol
    tasks_digest: str
    """of the frozen index list: equal digests mean equal questions"""
    metrics: dict[str, Any]
    """all of `engram.evaluation.metrics.summarise`, and ``stream`` for streams"""
    outcomes: Outcomes
    """every answer"""
    seconds: float

    @property
    def accuracy(self) -> float:
        """A fraction of 1."""
        return float(self.metrics["accuracy"])

    @property
    def interval(self) -> float:
        """Half-width of the 95 % interval of `accuracy` over independent sequences."""
        return float(self.metrics["interval"])

    def __repr__(self) -> str:
        asked = self.protocol
        tasks = f"{asked.dataset} {asked.split}, {asked.n_way}-way {asked.n_shot}-shot, {asked.n_sequences} sequences"
        return f"Result({tasks}: {100 * self.accuracy:.2f} ± {100 * self.interval:.2f} %)"

    def to_evaluation(self, tasks_file: str = "") -> Evaluation:
        return Evaluation(self.protocol.to_dict(), self.tasks_digest, self.metrics, round(self.seconds, 3), tasks_file)

    def save_tasks(self, path: Path, predictions: bool = False) -> None:
        """Accuracy of every task (so runs can be paired), and labels and probabilities on request; compressed."""
        more = {}
        if predictions:
            more["labels"] = self.outcomes.labels.astype(np.uint8)
            more["probabilities"] = self.outcomes.probabilities.astype(np.float16)
        write_tasks(path, self.outcomes.correct.mean(-1, keepdims=True), more)


@torch.no_grad()
def evaluate(
    method: Method,
    store: Store,
    protocol: Protocol,
    device: torch.device | str = "cpu",
    seed_samples: int = 0,
    progress: bool = False,
    share: Share = ALL,
) -> Result:
    """Answer a protocol's frozen tasks in evaluation mode. ``seed_samples`` seeds methods that draw samples.

    The global random state is left as it was. Processes that each call it with their ``share`` answer some of the
    batches that one alone would make, and all get the whole result; where samples are drawn each answers everything, or
    the samples would be others.
    """
    protocol = protocol.for_store(store)
    check_can_answer(method, protocol)
    tasks = frozen_tasks(store, protocol)
    at_once = _tasks_at_once(tasks, device)
    size = max(at_once // tasks.stream_length, min(SIDE_BY_SIDE, at_once))
    batches = [tasks.slice(slice(start, start + size)) for start in range(0, tasks.n_sequences, size)]
    part_of_it = ALL if method.card.stochastic else share
    training = method.training
    method.eval()
    started = time.perf_counter()
    pieces = []
    console = Console(stderr=True)
    on_gpu = [torch.device(device)] if torch.device(device).type == "cuda" else []
    try:
        with (
            torch.random.fork_rng(on_gpu),
            Progress(console=console, disable=not (progress and console.is_terminal), transient=True) as bar,
            looking(method, store, protocol),
            encoded(method, store, tasks, device, MAX_IMAGES[torch.device(device).type], share) as asked,
        ):
            job = bar.add_task(f"{protocol.n_way}-way {protocol.n_shot}-shot", total=len(batches))
            if method.card.stochastic:
                torch.manual_seed(seed_samples)
            for part in batches[part_of_it.of(len(batches))]:
                pieces.append(_answer(method, asked, part, protocol, device))
                bar.advance(job, part_of_it.count)
    finally:
        method.train(training)
    outcomes = _join(chained(pieces, part_of_it))
    metrics = summarise(outcomes)
    if protocol.stream_length > 1:
        outcomes = _with_past(outcomes, tasks, store.info.group_size)
        metrics["stream"] = stream_summary(outcomes)
    return Result(protocol, tasks.digest, metrics, outcomes, time.perf_counter() - started)


def _with_past(outcomes: Outcomes, tasks: TaskList, group_size: int) -> Outcomes:
    """What each query's class, and its very image (or original of it), had been through before."""
    labels = tasks.query_labels
    return replace(
        outcomes,
        encounters=of_queries(encounters(tasks.class_ids), labels),
        gaps=of_queries(gaps(tasks.class_ids), labels),
        met_before=met_before(tasks.support_rows // group_size, tasks.query_rows // group_size),
    )


def _tasks_at_once(tasks: TaskList, device: torch.device | str) -> int:
    images = tasks.support_rows.shape[2] + tasks.query_rows.shape[2]
    return max(1, MAX_IMAGES[torch.device(device).type] // images)


def _answer(method: Method, store: Store, tasks: TaskList, protocol: Protocol, device: torch.device | str) -> Outcomes:
    """A few sequences from start to end; a long stream goes in pieces that hand the history on."""
    steps_at_once = max(1, _tasks_at_once(tasks, device) // tasks.n_sequences)
    history: History = ()
    probabilities, labels, edges, pairs = [], [], [], []
    for start in range(0, tasks.stream_length, steps_at_once):
        part = tasks.slice(slice(None), slice(start, start + steps_at_once))
        episodes, answers = episodes_at(store, part, protocol.n_way, device)
        if protocol.erase_history:
            predictions = tuple(replace(method.predict(episode), history=()) for episode in episodes)
        else:
            predictions = method.predict_sequence(episodes, history)
        history = predictions[-1].history
        for episode, answer, prediction in zip(episodes, answers, predictions, strict=True):
            check_prediction(prediction, episode, type(method).__name__)
            probabilities.append(prediction.log_probs.exp().float().cpu().numpy())
            labels.append(answer.query_labels.cpu().numpy())
            if "edges" in prediction.details:
                edges.append(edge_accuracy(prediction.details["edges"], episode, answer).cpu().numpy())
                pairs.append(query_pairs(prediction.details["edges"], answer).cpu().numpy())
    again = _ask_again(method, store, tasks.slice(slice(None), slice(0, protocol.revisit)), protocol, device, history)
    return Outcomes(
        np.stack(labels, 1),
        np.stack(probabilities, 1),
        np.stack(edges, 1) if edges else None,
        # where each query has a graph of its own there is nothing between two of them
        np.stack(pairs, 1) if pairs and method.card.transductive else None,
        again=again,
    )


def _ask_again(
    method: Method, store: Store, tasks: TaskList, protocol: Protocol, device: torch.device | str, history: History
) -> np.ndarray | None:
    """Answers to the first tasks with the history of the whole stream, which none of them adds to."""
    answers = []
    for t in range(tasks.stream_length):
        episodes, _ = episodes_at(store, tasks.slice(slice(None), slice(t, t + 1)), protocol.n_way, device)
        prediction = method.predict(episodes[0], history)
        check_prediction(prediction, episodes[0], type(method).__name__)
        answers.append(prediction.log_probs.exp().float().cpu().numpy())
    return np.stack(answers, 1) if answers else None


def check_prediction(prediction: Prediction, episode: Episode, name: str) -> None:
    """Refuse answers that are not log-probabilities of the right shape: a wrong number would pass as a result."""
    expected = (*episode.query.shape[:2], episode.n_way)
    got = tuple(prediction.log_probs.shape)
    if got != expected:
        raise EngramError(
            f"{name}.predict gave log_probs of shape {got} where {expected} (tasks, queries, ways) is needed"
        )
    total = prediction.log_probs.exp().sum(-1)
    if not bool(torch.isfinite(total).all()):
        where = _inner_step(prediction.details.get("support_losses"))
        raise EngramError(f"{name}.predict gave log_probs that are not finite{where}: check the weights and the input")
    worst = float((total - 1).abs().max())
    if worst > 1e-3:
        raise EngramError(
            f"{name}.predict gave probabilities that add up to 1 within {worst:.2g} only, not 0.001: apply log_softmax"
        )


def _inner_step(losses: torch.Tensor | None) -> str:
    """Where a method that adapts to its task went wrong: the first inner step whose support loss (B, steps) broke."""
    if losses is None:
        return ""
    step = int(losses.isfinite().long().cumprod(1).sum(1).min())
    return f" (the adaptation broke at inner step {step} of {losses.shape[1]}: lower the inner rate)"


def edge_accuracy(edges: torch.Tensor, episode: Episode, answers: Answers) -> torch.Tensor:
    """Share of last-layer query-support edges on the right side of 0.5, labelled supports only: (B,)."""
    n_support = episode.support_labels.shape[1]
    predicted = edges[:, -1, n_support:, :n_support] > 0.5
    labelled = (episode.support_labels >= 0)[:, None, :].expand_as(predicted)
    right = predicted == (answers.query_labels[:, :, None] == episode.support_labels[:, None, :])
    return (right & labelled).sum((1, 2)) / labelled.sum((1, 2))


def query_pairs(edges: torch.Tensor, answers: Answers) -> torch.Tensor:
    """Mean last-layer edge of two queries of one class, and of two classes: (B, 2); nan where there is no such pair."""
    labels = answers.query_labels
    between = edges[:, -1, -labels.shape[1] :, -labels.shape[1] :]
    same = labels[:, :, None] == labels[:, None, :]
    itself = torch.eye(labels.shape[1], dtype=torch.bool, device=labels.device)
    means = [(between * kind).sum((1, 2)) / kind.sum((1, 2)) for kind in (same & ~itself, ~same)]
    return torch.stack(means, -1)


def _join(pieces: list[Outcomes]) -> Outcomes:
    """One after the other; what no piece has stays away."""
    given = {f.name: [getattr(p, f.name) for p in pieces] for f in fields(Outcomes)}
    joined: dict[str, Any] = {n: np.concatenate(v) for n, v in given.items() if all(part is not None for part in v)}
    return Outcomes(**joined)
