"""The losses between two validations, read from the device in blocks so that no step waits for it."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import torch
from torch import Tensor

RECENT = 20
"""steps whose mean is shown as the present loss"""


class LossWindow:
    """Means of the loss and its named terms since the last `reset`.

    Values are summed one by one in the order of the steps, so the means do not depend on when blocks were read: a run
    that was interrupted and resumed has the same curves as one that was not.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[int, tuple[str, ...], Tensor]] = []
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._recent: deque[dict[str, float]] = deque(maxlen=RECENT)
        self.at_break: dict[str, float] = {}
        """all values of the first step whose loss was not finite"""

    def add(self, step: int, names: tuple[str, ...], values: Tensor) -> None:
        """Keep a step's loss and terms, still on the device."""
        self._pending.append((step, names, values))

    def read(self) -> int | None:
        """Wait for the device once and take in all steps since; the first step whose loss is not finite, if any."""
        if not self._pending:
            return None
        values = torch.cat([row for _, _, row in self._pending]).tolist()
        broken: int | None = None
        for step, names, _ in self._pending:
            numbers = dict(zip(names, values, strict=False))
            values = values[len(names) :]
            self._recent.append(numbers)
            for name, number in numbers.items():
                self._sums[name] = self._sums.get(name, 0.0) + number
                self._counts[name] = self._counts.get(name, 0) + 1
            if broken is None and not math.isfinite(numbers["loss"]):
                broken, self.at_break = step, numbers
        self._pending = []
        return broken

    def recent(self) -> dict[str, float]:
        """Means over the last `RECENT` steps that were read."""
        names = self._recent[-1] if self._recent else {}
        present = {name: [numbers[name] for numbers in self._recent if name in numbers] for name in names}
        return {name: sum(numbers) / len(numbers) for name, numbers in present.items()}

    def means(self) -> dict[str, float]:
        """Since the last `reset`."""
        return {name: total / self._counts[name] for name, total in self._sums.items()}

    def reset(self) -> None:
        self._sums, self._counts = {}, {}

    def state(self) -> dict[str, Any]:
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def restore(self, state: dict[str, Any]) -> None:
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])
