"""Which weights are kept: a moving average, made by every step, against the last weights at every validation; and what
training made of an encoder that was there before: what validation classes gain, and how sure that is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram import processes
from engram.data.episodes import frozen_tasks
from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.evaluate import Result
from engram.evaluation.metrics import interval
from engram.files import read_json
from engram.models.checkpoint import Chosen
from engram.structure import structure
from engram.types import Method


class Average:
    """After step s, counted from 1: a <- d a + (1 - d) w with d = min(``decay``, (1 + s) / (10 + s)), in float32.

    ``w`` are all floating tensors of the method's state: parameters, and buffers such as running statistics. Whole
    numbers are those of the last step. `follow` is part of a captured step: the count is a tensor on the device, and
    ``weights`` share the memory that optimisers and BatchNorm write to.
    """

    def __init__(self, method: Method, decay: float) -> None:
        self.method, self.decay = method, decay
        own = {name: value for name, value in method.state_dict().items() if value.is_floating_point()}
        self.names, self.weights = list(own), list(own.values())
        self.averages = [value.to(torch.float32, copy=True) for value in self.weights]
        self.steps = torch.zeros((), device=self.weights[0].device)

    @torch.no_grad()
    def follow(self) -> None:
        """Once after every step."""
        self.steps += 1
        share = 1 - ((1 + self.steps) / (10 + self.steps)).clamp(max=self.decay)
        # As a + (1 - d) (w - a): what training leaves alone then stays exactly as it is.
        change = torch._foreach_sub([weight.float() for weight in self.weights], self.averages)
        torch._foreach_mul_(change, share)
        torch._foreach_add_(self.averages, change)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The method answers with the averages meanwhile. Its tensors stay the same objects for all who hold them."""
        last = [weight.clone() for weight in self.weights]
        try:
            self._copy(self.averages, self.weights)
            yield
        finally:
            self._copy(last, self.weights)

    def state_dict(self) -> dict[str, Tensor]:
        """The method's whole state with the averages in it."""
        return {**self.method.state_dict(), **dict(zip(self.names, self.averages, strict=True))}

    def restore(self, saved: Mapping[str, Tensor], steps: int) -> None:
        """Go on from `state_dict` after ``steps`` steps."""
        self._copy([saved[name] for name in self.names], self.averages)
        self.steps.fill_(steps)

    @staticmethod
    @torch.no_grad()
    def _copy(sources: list[Tensor], targets: list[Tensor]) -> None:
        for source, target in zip(sources, targets, strict=True):
            target.copy_(source)


def ask_both(ask: Callable[[], Result], average: Average | None) -> tuple[Chosen, Result, dict[str, float]]:
    """Which weights answer better, what they answer and, where there is an average, the accuracies of both."""
    last = ask()
    if average is None:
        return "weights", last, {}
    with average.in_place():
        averaged = ask()
    accuracies = {"last": last.metrics["accuracy"], "average": averaged.metrics["accuracy"]}
    apart = {f"validation_accuracy_{name}": value for name, value in accuracies.items()}
    if accuracies["average"] > accuracies["last"]:
        return "average", averaged, apart
    return "weights", last, apart


AS_IT_CAME = "as_it_came.json"


@dataclass(frozen=True)
class Kept:
    accuracy: float
    by_class: tuple[float, ...]


class AsItCame:
    """Validation classes as the backbone answers them before it is trained, kept in the run's folder for a run that
    goes on, and what training adds to them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / AS_IT_CAME
        self.accuracy: float | None = None
        self.by_class = np.empty(0)
        self.gain: dict[str, float] | None = None
        """the largest mean difference over classes, its 95 % interval and the number of classes"""

    def is_beaten(self, result: Result, store: Store, held: bool) -> bool:
        """Whether ``result`` is better by more than chance; anything is where there is nothing to compare with.

        The difference is paired and its interval is over classes, not tasks: hundreds of tasks of the same few classes
        say much of these and little of the next ones.
        """
        if held:
            self._keep(result.accuracy, _by_class(result, store))
        elif self.accuracy is None and self.file.is_file():
            kept = self._read()
            self.accuracy, self.by_class = kept.accuracy, np.array(kept.by_class)
        if held or self.accuracy is None:
            return True
        now = _by_class(result, store)
        if len(now) != len(self.by_class):
            raise EngramError(f"{self.file} tells of {len(self.by_class)} classes and {len(now)} are asked: remove it")
        more = now - self.by_class
        gain = {"difference": float(more.mean()), "interval": interval(more), "classes": len(more)}
        if self.gain is None or gain["difference"] > self.gain["difference"]:
            self.gain = gain
        return gain["difference"] > gain["interval"]

    def summary(self) -> dict[str, Any]:
        """For the record of a run; {} where no backbone waited for its head."""
        return {} if self.accuracy is None else {"frozen_accuracy": self.accuracy, "gain": self.gain}

    def _keep(self, accuracy: float, by_class: np.ndarray) -> None:
        self.accuracy, self.by_class = accuracy, by_class
        if processes.is_first():
            self.file.parent.mkdir(parents=True, exist_ok=True)
            new = self.file.with_suffix(".new")
            new.write_text(json.dumps(asdict(Kept(accuracy, tuple(by_class.tolist())))))
            os.replace(new, self.file)  # whole or not at all

    def _read(self) -> Kept:
        try:
            raw = read_json(self.file)
        except (OSError, ValueError) as error:
            raise EngramError(f"{self.file} cannot be read: remove it, and training is not compared") from error
        if not isinstance(raw, dict):
            raise EngramError(f"{self.file} holds no table: remove it, and training is not compared")
        kept = structure(raw, Kept, str(self.file))
        if not all(0 <= share <= 1 for share in (kept.accuracy, *kept.by_class)):
            raise EngramError(f"{self.file} holds an accuracy outside 0 to 1: remove it, and training is not compared")
        return kept


def _by_class(result: Result, store: Store) -> np.ndarray:
    """(classes that were asked about,) share of right answers."""
    tasks = frozen_tasks(store, result.protocol)
    classes = np.take_along_axis(tasks.class_ids, tasks.query_labels, -1)
    correct = result.outcomes.correct
    return np.array([correct[classes == number].mean() for number in np.unique(classes)])
