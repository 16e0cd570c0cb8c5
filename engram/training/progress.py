"""What a person sees of a run: a bar on a terminal, plain lines elsewhere, and TensorBoard scalars."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from engram import processes


@dataclass(frozen=True)
class Pace:
    """How fast a run goes and how long it still takes."""

    tasks_per_second: float
    seconds_left: float

    def __str__(self) -> str:
        return f"{self.tasks_per_second:,.0f} tasks/s {clock(self.seconds_left)} left"


class Display:
    """Progress bar with loss, accuracy, tasks/s, time left and best validation; elsewhere a line for each validation.

    Everything goes to standard error, so standard output stays free for results.
    """

    def __init__(self, title: str, total: int, enabled: bool) -> None:
        console = Console(stderr=True)
        self.title, self.total = title, total
        self.best = ""
        self._show = enabled and console.is_terminal
        self._bar = Progress(
            BarColumn(bar_width=8),  # all of it fits a terminal of 80 columns
            TextColumn("{task.description}", markup=False),
            console=console,
            disable=not self._show,
            transient=True,
        )
        self._job = self._bar.add_task("", total=total)

    def __enter__(self) -> Display:
        self._bar.start()
        if self._show:
            self._bar.console.print(self.title, highlight=False, markup=False)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, iteration: int, means: Mapping[str, float], pace: Pace) -> None:
        if self._show:
            words = f"{iteration}/{self.total} {_losses(means)} {pace} {self.best}"
            self._bar.update(self._job, completed=iteration, description=words)

    def validated(
        self, iteration: int, means: Mapping[str, float], metrics: Mapping[str, Any], best: str, pace: Pace
    ) -> None:
        self.best = best
        validation = f"validation {metrics['accuracy']:.2%} ± {metrics['interval']:.2%}"
        self.say(f"step {iteration}/{self.total} {_losses(means)} {validation} {best} {pace}")

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._show:
            self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
        elif processes.is_first():
            print(line, file=sys.stderr, flush=True)


def _losses(means: Mapping[str, float]) -> str:
    words = [f"loss {means['loss']:.4f}"] if "loss" in means else []
    return " ".join(words + ([f"accuracy {means['accuracy']:.1%}"] if "accuracy" in means else []))


def clock(seconds: float) -> str:
    """``1:02:03`` or ``2:03``"""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class ScalarLog:
    """TensorBoard scalars in a folder; nothing where TensorBoard is not installed or the disk does not take them."""

    def __init__(self, folder: Path, enabled: bool, first_step: int) -> None:
        self._writer: Any = None
        if not enabled:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter

            # Points after the checkpoint a run resumes from would otherwise be shown twice.
            self._writer = SummaryWriter(str(folder), purge_step=first_step or None)
        except (ImportError, OSError):
            pass

    def __enter__(self) -> ScalarLog:
        self._hook = threading.excepthook
        threading.excepthook = self._on_thread_error
        return self

    def __exit__(self, *_: object) -> None:
        self._attempt("close")
        threading.excepthook = self._hook

    def _on_thread_error(self, failure: threading.ExceptHookArgs) -> None:
        """TensorBoard writes in a thread of its own, which would print a traceback when the disk is full."""
        is_writer = type(failure.thread).__module__.startswith("tensorboard")
        if not (is_writer and issubclass(failure.exc_type, OSError)):
            self._hook(failure)

    def add(self, step: int, prefix: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, int | float):
                self._attempt("add_scalar", f"{prefix}/{name}", value, step)

    def _attempt(self, action: str, *arguments: Any) -> None:
        """Curves are a convenience: a full disk must not end a run through them."""
        if self._writer is not None:
            try:
                getattr(self._writer, action)(*arguments)
            except OSError:
                self._writer = None
