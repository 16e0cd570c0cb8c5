"""The losses between two validations, read from the device in blocks so that no step waits for it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

RECENT = 20
"""steps whose mean is shown as the present loss"""


LOWER_RATE = "a lower learning_rate or with clip"

Row = tuple[int, tuple[str, ...], Tensor]
"""a step, the names of its loss and terms, and their values on the device"""


class _Block:
    """Rows on their way from the device."""

    def __init__(self, rows: list[Row]) -> None:
        self.labels = [(step, names) for step, names, _ in rows]
        values = torch.cat([row for _, _, row in rows])
        self.values = values.to("cpu", non_blocking=True)
        self.event = torch.cuda.Event() if values.is_cuda else None
        if self.event:
            self.event.record()

    def arrived(self) -> Iterator[tuple[int, dict[str, float]]]:
        if self.event:
            self.event.synchronize()
        values = iter(self.values.tolist())
        for step, names in self.labels:
            yield step, {name: next(values) for name in names}


class LossWindow:
    """Means of the loss and its named terms since the last `reset`.

    Values are summed one by one in the order of the steps, so the means do not depend on when blocks were read: a run
    that was interrupted and resumed has the same curves as one that was not.
    """

    def __init__(self) -> None:
        self._pending: list[Row] = []
        self._sent: _Block | None = None
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._recent: deque[dict[str, float]] = deque(maxlen=RECENT)
        self.at_break: dict[str, float] = {}
        """all values of the first step whose loss was not finite"""

    def add(self, step: int, names: tuple[str, ...], values: Tensor) -> None:
        """Keep a step's loss and terms, still on the device."""
        self._pending.append((step, names, values))

    def read(self, lag: bool = False) -> int | None:
        """Take in all steps since the last time; the first step whose loss is not finite, if any.

        With ``lag`` the steps since then are only sent for, and those sent for last time taken in: they have long
        arrived, so the device is not kept waiting for the next step while the host waits for the device.
        """
        new = _Block(self._pending) if self._pending else None
        self._pending = []
        blocks = [self._sent] if lag else [self._sent, new]
        self._sent = new if lag else None
        return next((step for block in blocks if block for step in [self._take_in(block)] if step is not None), None)

    def _take_in(self, block: _Block) -> int | None:
        broken: int | None = None
        for step, numbers in block.arrived():
            self._recent.append(numbers)
            for name, number in numbers.items():
                self._sums[name] = self._sums.get(name, 0.0) + number
                self._counts[name] = self._counts.get(name, 0) + 1
            if broken is None and not math.isfinite(numbers["loss"]):
                broken, self.at_break = step, numbers
        return broken

    def told(self, step: int, inner_steps: int) -> tuple[str, str]:
        """What broke at a step, in words with its numbers, and the way out: another inner rate where a task's
        adaptation of ``inner_steps`` steps broke first."""
        numbers = ", ".join(f"{name} = {value:.4g}" for name, value in self.at_break.items())
        inner = self.at_break.get("finite_inner_steps", inner_steps)
        if inner >= inner_steps:
            return f"the loss is not finite at step {step}: {numbers}", LOWER_RATE
        where = f"for the adaptation to a task broke at inner step {int(inner) + 1}"
        return f"the loss is not finite at step {step}, {where}: {numbers}", "a lower inner rate in [method]"

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
        """Put back what `state` gave; ValueError where that is not sums and how many went into each."""
        sums, counts = dict(state["sums"]), dict(state["counts"])
        if sums.keys() != counts.keys() or not all(type(count) is int and count > 0 for count in counts.values()):
            raise ValueError("the sums of its losses have no counts")
        self._sums, self._counts = {name: float(total) for name, total in sums.items()}, counts
