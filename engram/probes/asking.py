"""Putting the same question in two ways: episodes reordered or renamed, answers collected and compared.

Exact probes ask in double precision, so that rounding is not taken for a dependence: in float32 a method whose logits
run into the hundreds moves its probabilities by 1e-5 when only the shape of a batch changes, in float64 by 1e-13, far
below any tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from engram.evaluation.evaluate import check_prediction
from engram.types import Episode, History, Method, Prediction


class _Float64ForFloat32(TorchFunctionMode):
    """Whoever asks for float32 gets float64: ``x.float()``, ``x.to(torch.float32)``, ``dtype=torch.float32``."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.float:
            return args[0].double()
        widened = [torch.float64 if a is torch.float32 else a for a in args]
        named = {k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()}
        return func(*widened, **named)


@contextmanager
def double_precision() -> Iterator[None]:
    """Inside, tensors are created and cast in float64 where float32 is asked for."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Float64ForFloat32():
            yield
    finally:
        torch.set_default_dtype(before)


def doubled(episode: Episode) -> Episode:
    """Float features in float64; images of bytes as they are."""
    if not episode.support.is_floating_point():
        return episode
    return replace(episode, support=episode.support.double(), query=episode.query.double())


TOLERANCE = 1e-5
"""changes of a probability up to here do not count"""
FLOAT32_TOLERANCE = 1e-4
"""the same where a method cannot run in float64, for rounding of large logits reaches 1e-5 in float32"""
ALPHA = 0.001
"""chance that a statistical probe cries wolf; small, as an audit has several"""
DRAWS = 12
"""evaluations of each arm where a method draws samples"""
PERMUTATIONS = 4000


@dataclass(frozen=True)
class Asker:
    """Asks a method in evaluation mode; a stochastic one several times, each arm with seeds of its own."""

    method: Method
    seed: int = 0
    double: bool = False

    @property
    def draws(self) -> int:
        return DRAWS if self.method.card.stochastic else 1

    @property
    def tolerance(self) -> float:
        return TOLERANCE if self.double else FLOAT32_TOLERANCE

    def ask(self, episodes: Sequence[Episode], history: History = (), arm: int = 0) -> Tensor:
        """Probabilities (draws, T, B, Q, n_way) on the CPU; every step must have as many queries."""
        answers = []
        for draw in range(self.draws):
            torch.manual_seed(self.seed + 1000 * arm + draw)
            predictions = self.sequence(episodes, history)
            answers.append(torch.stack([p.log_probs.double().exp().cpu() for p in predictions]))
        return torch.stack(answers)

    def sequence(self, episodes: Sequence[Episode], history: History = ()) -> tuple[Prediction, ...]:
        """One checked pass over a stream."""
        if self.double:
            episodes = [doubled(e) for e in episodes]
        with double_precision() if self.double else nullcontext():
            predictions = self.method.predict_sequence(episodes, history)
        for episode, prediction in zip(episodes, predictions, strict=True):
            check_prediction(prediction, episode, type(self.method).__name__)
        return predictions


def most_precise(asker: Asker, episodes: Sequence[Episode]) -> Asker:
    """The same asker in float64 where the method runs there and still gives its own answers; else as it is.

    Samples are drawn otherwise in float64, so a stochastic method stays in float32; its test knows no rounding anyway.
    """
    answers = asker.ask(episodes)  # first, so that a method's own errors come out as they are
    if asker.method.card.stochastic:
        return asker
    try:
        precise = replace(asker, method=deepcopy(asker.method).double(), double=True)
        if any(p.log_probs.dtype is not torch.float64 for p in precise.sequence(episodes[:1])):
            return asker
        gap = float((precise.ask(episodes) - answers).abs().max())
    except Exception:  # a method may refuse float64 in any way; each means: stay in float32
        return asker
    return precise if gap < 0.01 else asker


def compare(first: Tensor, second: Tensor, tolerance: float) -> tuple[float, float]:
    """Largest change of a mean probability between two arms (draws, ...), and the bound it is judged by.

    One draw each: the tolerance. Several: the (1 - ALPHA) quantile of the same maximum when the draws are dealt to the
    two arms at random, a permutation test that is exact whatever the number of probabilities.
    """
    effect = float((first.mean(0) - second.mean(0)).abs().max())
    draws = len(first)
    if draws == 1:
        return effect, tolerance
    pooled = torch.cat([first, second]).flatten(1)
    generator = torch.Generator().manual_seed(0)
    dealt = torch.rand(PERMUTATIONS, 2 * draws, generator=generator, dtype=torch.float64).argsort(1) < draws
    signs = (2.0 * dealt.double() - 1) / draws
    null = (signs @ pooled).abs().amax(1)
    return effect, max(tolerance, float(null.quantile(1 - ALPHA)))


def cyclic_order(tasks: int, slots: int, generator: torch.Generator) -> Tensor:
    """(tasks, slots) random orders, each a single cycle: with two slots or more, none stays where it was."""
    base = torch.rand(tasks, slots, generator=generator).argsort(1)
    return torch.empty_like(base).scatter_(1, base, base.roll(1, 1))


def random_order(slots: Tensor, generator: torch.Generator) -> Tensor:
    """Uniformly random orders of the slots of a (tasks, slots) tensor."""
    return torch.rand(slots.shape, generator=generator).argsort(1)


def reorder(part: Tensor, order: Tensor) -> Tensor:
    """Slots of (B, V, ...) taken in the order (B, V)."""
    rows = torch.arange(len(part), device=part.device)[:, None]
    return part[rows, order.to(part.device)]


def with_query_order(episode: Episode, order: Tensor) -> Episode:
    return replace(episode, query=reorder(episode.query, order))


def with_support_order(episode: Episode, order: Tensor) -> Episode:
    return replace(
        episode,
        support=reorder(episode.support, order),
        support_labels=reorder(episode.support_labels, order),
        hidden_labels=None if episode.hidden_labels is None else reorder(episode.hidden_labels, order),
    )


def relabelled(episode: Episode, new: Tensor) -> Episode:
    """Class c of task b gets the label new[b, c]; names, where there are any, go with their classes."""
    new = new.to(episode.support_labels.device)
    labels = torch.where(
        episode.support_labels >= 0, new.gather(1, episode.support_labels.clamp(min=0)), episode.support_labels
    )
    hidden = None if episode.hidden_labels is None else new.gather(1, episode.hidden_labels)
    names = episode.class_names
    if names is not None:
        names = torch.empty_like(names).scatter_(1, new, names)
    return replace(episode, support_labels=labels, class_names=names, hidden_labels=hidden)


def roll_history(history: History, tasks: int) -> History | None:
    """Every task gets the past of its neighbour in the batch; None where a tensor's first axis is not the tasks."""
    if any(part.ndim == 0 or len(part) % tasks for part in history):
        return None
    return tuple(part.roll(len(part) // tasks, 0) for part in history)


def noise_like(images: Tensor, generator: torch.Generator, spread: tuple[float, float]) -> Tensor:
    """Pure noise of the same shape and type: uniform bytes, or Gaussian features with the store's mean and spread."""
    if images.is_floating_point():
        noise = torch.randn(images.shape, generator=generator) * spread[1] + spread[0]
    else:
        noise = torch.randint(0, 256, images.shape, generator=generator)
    return noise.to(images.device, images.dtype)
