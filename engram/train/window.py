"""The losses between two validations, read from the device in blocks so that no step waits for it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from engram.types import LossTerms


class LossWindow:
    """Means of the loss and its named terms since the last `reset`.

    Values are summed one by one in the order of the steps, so the means do not depend on when blocks were read: a run
    that was interrupted and resumed has the same curves as one that was not.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[int, tuple[str, ...], Tensor]] = []
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, step: int, terms: LossTerms) -> None:
        """Keep a step's values on the device."""
        values = [terms.total, *terms.terms.values()]
        row = torch.stack([value.detach().to(terms.total.device, torch.float32).reshape(()) for value in values])
        self._pending.append((step, ("loss", *terms.terms), row))

    def read(self) -> tuple[dict[str, float], int | None]:
        """Wait for the device once; (means over the block just read, first step whose loss is not finite)."""
        if not self._pending:
            return {}, None
        values = iter(torch.cat([row for _, _, row in self._pending]).tolist())
        block: dict[str, list[float]] = {}
        broken: int | None = None
        for step, names, _ in self._pending:
            for name, value in zip(names, values, strict=False):
                block.setdefault(name, []).append(value)
                if name == "loss" and broken is None and not math.isfinite(value):
                    broken = step
        self._pending = []
        for name, numbers in block.items():
            for number in numbers:
                self._sums[name] = self._sums.get(name, 0.0) + number
            self._counts[name] = self._counts.get(name, 0) + len(numbers)
        return {name: sum(numbers) / len(numbers) for name, numbers in block.items()}, broken

    def means(self) -> dict[str, float]:
        return {name: total / self._counts[name] for name, total in self._sums.items()}

    def reset(self) -> None:
        self._sums, self._counts = {}, {}

    def state(self) -> dict[str, Any]:
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def restore(self, state: dict[str, Any]) -> None:
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])
