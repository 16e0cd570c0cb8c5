"""A moving average of the weights, made by every step and compared with the last weights at every validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from engram.evaluation.evaluate import Result
from engram.models.checkpoint import Chosen
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
