"""The whole contract between data, methods and bench.

A `Method` sees `Episode`s and its own past (`History`), never `Answers`; loss and metrics see both. State is passed,
not stored, so nobody can look into the future and a stream can go on in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from engram.card import MethodCard as MethodCard

History = tuple[Tensor, ...]
"""``()`` is "no past". Tensors only, so a history can be moved, saved and carried into the next day."""


class _Tensors:
    """Does the same to every tensor field of a frozen dataclass."""

    def _each(self, change: Callable[[Tensor], Tensor]) -> Any:
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        changed = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **changed)  # type: ignore[type-var]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Any:
        return self._each(lambda value: value.to(device, non_blocking=non_blocking))

    def part(self, tasks: slice) -> Any:
        """Some of the B tasks."""
        return self._each(lambda value: value[tasks])


@dataclass(frozen=True)
class Episode(_Tensors):
    """B unrelated tasks side by side at one step of time: all that a method may look at."""

    support: Tensor
    """(B, S, ...) uint8 images or float features, in any order: pool by label, never by position."""
    support_labels: Tensor
    """(B, S) int64 in [0, n_way), any count >= 1 per class; -1 = unlabelled (semi-supervised)."""
    query: Tensor
    """(B, Q, ...)"""
    n_way: int
    class_names: Tensor | None = None
    """(B, n_way) int64 identities that persist over a *named* stream; None when labels are local to the task."""
    hidden_labels: Tensor | None = None
    """(B, S) labels of all supports, also of those that are -1 above. None but for a protocol that gives them away to
    reproduce a leak (``hidden_labels_shown``): a method that reads them is no fair one, and the audit says so."""


@dataclass(frozen=True)
class Answers(_Tensors):
    """The sealed half: loss and metrics see it, `predict` cannot."""

    query_labels: Tensor
    """(B, Q) int64 in [0, n_way)"""
    class_ids: Tensor
    """(B, n_way) int64 row of each class in its split"""


@dataclass(frozen=True)
class TrainBatch:
    """What the one loop hands to `Method.loss`: T steps of B sequences in time order, slots redrawn at every step."""

    episodes: tuple[Episode, ...]
    answers: tuple[Answers, ...]
    class_batch: tuple[Tensor, Tensor] | None = None
    """Base-class images and ids, for auxiliary or base-class objectives."""
    progress: float | Tensor = 0.0
    """0..1 of the schedule, for annealing and freezing; a number on the device where the step is captured."""

    def tasks(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Supports, their labels, queries and theirs, of all T * B tasks side by side."""
        return (
            torch.cat([e.support for e in self.episodes]),
            torch.cat([e.support_labels for e in self.episodes]),
            torch.cat([e.query for e in self.episodes]),
            torch.cat([a.query_labels for a in self.answers]),
        )


@dataclass(frozen=True)
class Prediction:
    """What a method answers to an `Episode`."""

    log_probs: Tensor
    """(B, Q, n_way), normalised; Bayesian methods average probabilities first."""
    history: History = ()
    details: Mapping[str, Tensor] = field(default_factory=dict)
    """``edges`` (B, L, V, V) over supports then queries, ``samples`` (M, B, Q, n_way), ``votes`` likewise, of which
    the probabilities are the shares, ``memory_read``: for figures."""


@dataclass(frozen=True)
class LossTerms:
    """What `Method.loss` gives: the number to descend, and its parts by name."""

    total: Tensor
    terms: Mapping[str, Tensor] = field(default_factory=dict)
    """Named parts, for the log; ``accuracy`` where the method knows it."""


@dataclass(frozen=True)
class Objective:
    """A loss with updates of its own: its gradient is clipped alone, and its optimiser has a momentum of its own."""

    loss: Callable[[TrainBatch], LossTerms]
    chance: Callable[[float | Tensor], float | Tensor] | None = None
    """progress -> probability that a step makes this update, tossed for on the device; None: every step does"""


class Method(nn.Module):
    """A few-shot learner. Build it as ``Class(backbone, config)`` where ``config`` is an instance of ``Class.Config``.

    `card` is what the class claims; an instance whose configuration changes a claim sets its own ``self.card``.
    """

    card: MethodCard
    Config: ClassVar[type]
    """Frozen dataclass of the keywords a recipe's [method] table may give."""
    base_rows: ClassVar[str] = ""
    """Name of the weights with one row for each base class, where there are such: what stage one hands on."""
    capturable: ClassVar[bool] = True
    """Whether a training step may be recorded as a CUDA graph: not where it calls a library of linear algebra."""
    goes_whole: ClassVar[Literal["", "sequences", "class_batch"]] = ""
    """What of a batch several processes do not share out: base-class images where the loss asks every task about every
    one of them, sequences where it looks at none."""
    teachable: ClassVar[bool] = False
    """Whether it learns from the answers of an earlier run of its kind, which training then puts into `teachers`."""
    teachers: tuple[Any, ...] = ()
    """One or none; in a tuple, so that it is no part of this module: neither trained nor saved nor moved with it."""

    def __init__(self, backbone: nn.Module, config: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.config = config

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        raise NotImplementedError

    def predict_sequence(self, episodes: Sequence[Episode], history: History = ()) -> tuple[Prediction, ...]:
        """One prediction per step, each seeing only earlier steps. A fast path may override this, not change it."""
        return _in_turn(self.predict, episodes, history)

    def loss(self, batch: TrainBatch) -> LossTerms:
        """Mean negative log-likelihood of the true classes over steps, tasks and queries."""
        log_probs = torch.stack([p.log_probs for p in self.predict_sequence(batch.episodes)])
        labels = torch.stack([a.query_labels for a in batch.answers])
        nll = -log_probs.gather(-1, labels[..., None]).mean()
        return LossTerms(nll, {"nll": nll.detach(), "accuracy": (log_probs.argmax(-1) == labels).float().mean()})

    def objectives(self) -> tuple[Objective, ...]:
        """What a step learns from, one update after the other; all of them answer for what `parameter_groups` lists."""
        return (Objective(self.loss),)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": [p for p in self.parameters() if p.requires_grad]}]


class EmbeddingMethod(Method):
    """A method that looks at images only through its backbone: subclasses write `classify` on features.

    In a sequence all T * B * (S + Q) images pass the backbone in one call.
    """

    def classify(self, episode: Episode, history: History = ()) -> Prediction:
        """`predict` on an episode whose support and query are features (B, S, ...) and (B, Q, ...)."""
        raise NotImplementedError

    def embed(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The same episodes with features in place of images; one backbone call for all of them."""
        return in_one_call(lambda images, _: self.backbone(images), episodes)

    def predict(self, episode: Episode, history: History = ()) -> Prediction:
        return self.classify(self.embed([episode])[0], history)

    def predict_sequence(self, episodes: Sequence[Episode], history: History = ()) -> tuple[Prediction, ...]:
        return _in_turn(self.classify, self.embed(episodes), history)


def in_one_call(change: Callable[[Tensor, list[int]], Tensor], episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes with what ``change`` makes of all their images (n, ...), given how many of them each part has."""
    images = [part.flatten(0, 1) for e in episodes for part in (e.support, e.query)]
    sizes = [len(part) for part in images]
    changed = change(torch.cat(images), sizes).split(sizes)
    return [
        replace(e, support=s.unflatten(0, e.support.shape[:2]), query=q.unflatten(0, e.query.shape[:2]))
        for e, s, q in zip(episodes, changed[::2], changed[1::2], strict=True)
    ]


def _in_turn(
    answer: Callable[[Episode, History], Prediction], episodes: Sequence[Episode], history: History
) -> tuple[Prediction, ...]:
    """Each step with the history that the one before it left."""
    predictions: list[Prediction] = []
    for episode in episodes:
        predictions.append(answer(episode, history))
        history = predictions[-1].history
    return tuple(predictions)
