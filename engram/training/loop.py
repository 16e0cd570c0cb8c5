"""The only training loop: step, look at the loss, validate, save, and know when to stop.

A run that was stopped and resumed continues as if it had not been: on the CPU bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from engram import processes
from engram.data.store import Store
from engram.evaluation.evaluate import Result
from engram.machine.device import DeviceUse
from engram.machine.interruptions import RunLock, StopRequest
from engram.models.features import familiarity
from engram.nn import kernels
from engram.recipes.schema import Recipe
from engram.training.progress import Display, Pace, ScalarLog
from engram.training.running import USUAL, WHOLE, Limits, Running, fast_arithmetic
from engram.training.start import start, start_teacher
from engram.training.trainer import Trainer
from engram.types import Method

READ_EVERY = 20
"""steps between two looks at the loss on a GPU: each look waits for the steps before the last one"""

StoppedBy = Literal["iterations", "max_iterations", "max_minutes", "signal"]
OnValidation = Callable[[int, Result], None]
"""called with the step and what the validation tasks gave, after every validation"""


@dataclass(frozen=True)
class TrainOutcome:
    method: Method
    """with the best weights on validation, in evaluation mode"""
    status: Literal["finished", "interrupted"]
    """interrupted: by Ctrl-C or SIGTERM; a run that used up its minutes is finished"""
    curves: dict[str, list[float]]
    """one entry per validation: iteration, loss, learning_rate, train_<term>, validation_accuracy and _interval;
    with an average also validation_accuracy_last and _average"""
    training: dict[str, Any]
    """iterations, seconds, tasks_per_second, best_iteration, best_accuracy, parameters, stopped_by, card, ..."""
    run_id: str
    revision: int
    start: dict[str, str]
    """digests of the weights and features it started from"""


def train(
    recipe: Recipe,
    stores: Mapping[str, Store],
    run_folder: Path,
    *,
    device: torch.device,
    resume: bool = False,
    limits: Limits = WHOLE,
    running: Running = USUAL,
    on_validation: OnValidation | None = None,
) -> TrainOutcome:
    """Train a recipe on ``stores["train"]``, validate on ``stores["val"]``, keep checkpoints in ``run_folder``.

    A falling schedule with ``max_minutes`` ends with the minutes where they run out before the iterations; a resumed
    run goes by iterations alone, so that it can be repeated, unless ``whole_run`` counts the minutes of earlier calls.
    Ctrl-C and SIGTERM finish the step, save without validating, and give status "interrupted"; a second Ctrl-C leaves
    at once.
    """
    classes = recipe.data.train_classes
    stores = {split: store.classes(classes) if split == "train" else store for split, store in stores.items()}
    is_first = processes.is_first()  # the one that locks, writes and shows
    with processes.agreed():
        trainer = Trainer(recipe, stores, Path(run_folder), device, running)
        if not resume:  # a resumed run has weights of its own
            trainer.start |= start(trainer.method, recipe, stores["train"])
        trainer.start |= start_teacher(trainer.method, recipe, stores["train"])
    with ExitStack() as held, fast_arithmetic(device, running.plain) as use:
        with processes.agreed():
            if is_first:
                held.enter_context(RunLock(trainer.folder))
            trainer.begin(resume)
        title = recipe.name if "/" in recipe.name else f"{recipe.method} {recipe.name}"
        with (
            Display(title, recipe.train.iterations, running.progress and is_first) as display,
            ScalarLog(trainer.folder / "tensorboard", running.tensorboard and is_first, trainer.iteration) as scalars,
            StopRequest() as stop,
        ):
            device_use = DeviceUse(device)
            stopped_by = _Loop(trainer, use, device_use, limits, display, scalars, stop, on_validation).run()
        trainer.load_best()
    status: Literal["finished", "interrupted"] = "interrupted" if stopped_by == "signal" else "finished"
    training = _summary(trainer, stopped_by) | {"kernels": use.by, "device_use": device_use.summary()}
    method, began = trainer.method.eval(), (trainer.run_id, trainer.revision, trainer.start)
    return TrainOutcome(method, status, trainer.curves, training, *began)


@dataclass
class _Loop:
    trainer: Trainer
    use: kernels.Use
    device_use: DeviceUse
    limits: Limits
    display: Display
    scalars: ScalarLog
    stop: StopRequest
    on_validation: OnValidation | None
    told: set[str] = field(default_factory=set)
    spent: float = 0.0
    """seconds, as all processes have it"""

    def run(self) -> StoppedBy:
        """Step until something says stop; the end is validated and saved, an interruption only saved."""
        trainer, settings = self.trainer, self.trainer.settings
        if sentence := familiarity(trainer.stores["train"]):
            self.display.say(sentence)
        end = min(settings.iterations, self.limits.max_iterations or settings.iterations)
        reason: StoppedBy = "iterations" if end == settings.iterations else "max_iterations"
        while trainer.iteration < end and not self._asked_to_stop():
            if self.limits.share_spent(self.spent) >= 1 and trainer.iteration > trainer.first_iteration:
                reason = "max_minutes"
                break
            progress = self._schedule_progress()
            if trainer.update.held and progress >= settings.head_first and trainer.validated != trainer.iteration:
                self._validate()  # the last answers of the backbone as it came
            trainer.step(progress)
            self._tell_what_is_slow()
            if trainer.device.type == "cpu" or trainer.iteration % READ_EVERY == 0:
                self._look(lag=trainer.device.type == "cuda")
            if trainer.iteration % settings.validate_every == 0:
                self._validate()
        is_validated = trainer.validated == trainer.iteration
        if self._asked_to_stop() and not (is_validated and trainer.iteration >= end):
            self._save_unfinished()
            return "signal"
        if not is_validated:
            self._validate()
        return reason

    def _tell_what_is_slow(self) -> None:
        """Each of it once; the first step has tried everything."""
        why, ahead = self.trainer.stepper.fallback, self.trainer.source.ahead
        for sentence in (
            self.use.lacking,
            why and f"steps are made one operation at a time, as {why}",
            ahead and f"{ahead.far_bytes / 1e9:.2f} GB of images are read from disk: --store-memory holds more",
        ):
            if sentence and sentence not in self.told:
                self.told.add(sentence)
                self.display.say(sentence)

    def _asked_to_stop(self) -> bool:
        """Whether any process has been; clocks differ too, and all have to go by one."""
        spent = self.trainer.seconds if self.limits.whole_run else self.trainer.elapsed
        asked, self.spent = processes.most(self.stop.requested, spent)
        return bool(asked)

    def _schedule_progress(self) -> float:
        """0..1 of the schedule: by iterations, or by minutes where a falling schedule has to end with them."""
        trainer = self.trainer
        share = trainer.iteration / trainer.settings.iterations
        falls = trainer.settings.schedule in ("linear", "cosine")
        if falls and (self.limits.whole_run or not trainer.resumed_from):
            share = max(share, self.limits.share_spent(self.spent))
        return min(1.0, share)

    def _look(self, lag: bool = False) -> None:
        means = self.trainer.read_losses(lag)
        if means:
            self.display.update(self.trainer.iteration, means, self._pace())
            if self.trainer.iteration % READ_EVERY == 0:
                self.scalars.add(self.trainer.iteration, "train", means | {"learning_rate": self.trainer.learning_rate})

    def _validate(self) -> None:
        self.device_use.look_at_work()
        self._look()
        trainer = self.trainer
        means = trainer.window.means()
        result = trainer.validate()
        best = f"best {trainer.best_accuracy:.2%}"
        self.display.validated(trainer.iteration, means, result.metrics, best, self._pace())
        self.scalars.add(trainer.iteration, "validation", result.metrics)
        if self.on_validation and processes.is_first():
            self.on_validation(trainer.iteration, result)

    def _save_unfinished(self) -> None:
        self._look()
        if self.trainer.saved != self.trainer.iteration:
            self.trainer.check_weights()
            self.trainer.save()

    def _pace(self) -> Pace:
        trainer = self.trainer
        rate = trainer.steps_per_second
        by_steps = (trainer.settings.iterations - trainer.iteration) / rate if rate else 0.0
        return Pace(trainer.tasks_per_second, min(by_steps, self.limits.seconds_left(self.spent)))


def _summary(trainer: Trainer, stopped_by: StoppedBy) -> dict[str, Any]:
    """The ``training`` entry of a run record."""
    return {
        "iterations": trainer.iteration,
        "seconds": round(trainer.seconds, 3),
        "validation_seconds": round(trainer.validation_seconds, 3),
        "tasks_per_second": round(trainer.tasks_per_second, 2),
        "best_iteration": trainer.best_iteration,
        "best_accuracy": trainer.best_accuracy,
        "chosen": trainer.chosen,
        "parameters": sum(p.numel() for p in trainer.method.parameters() if p.requires_grad),
        "precision": getattr(trainer.method.backbone, "precision", "fp32"),
        "captured": trainer.stepper.graph is not None,
        "from_disk": trainer.source.ahead is not None,
        "stopped_by": stopped_by,
        "resumed_from": trainer.resumed_from,
        **trainer.as_it_came.summary(),
        "processes": processes.mine().count,
        "card": asdict(trainer.method.card),
    }
