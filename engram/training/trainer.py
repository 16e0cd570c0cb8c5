"""All that changes while a model is trained: one step, one validation, one save, and going on from a checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch

from engram import processes
from engram.data.pixels import Crop
from engram.data.store import Store
from engram.errors import EngramError
from engram.evaluation.evaluate import Result, evaluate
from engram.evaluation.source import check_can_answer
from engram.ledger import new_run_id
from engram.models import checkpoint as checkpoints
from engram.models.build import build_method, revisions
from engram.models.run_folder import last_step
from engram.recipes.protocols import training_protocol, training_ranges, validation_protocol, validation_split
from engram.recipes.schema import Recipe
from engram.training.batches import BatchSource, check_ranges, random_state, restore_random_state
from engram.training.choosing import AsItCame, Average, ask_both
from engram.training.optimise import learning_rate_factor, pack_optimisers, set_learning_rate, unpack_optimisers
from engram.training.running import USUAL, Room, Running, seed_step, share_out
from engram.training.start import check_base_classes, check_same_run
from engram.training.step import Stepper, Update
from engram.training.window import LOWER_RATE, LossWindow


class Trainer:
    """Built without touching the disk; `begin` then starts a run in its folder or goes on with the one there."""

    def __init__(
        self, recipe: Recipe, stores: Mapping[str, Store], folder: Path, device: torch.device, running: Running = USUAL
    ) -> None:
        chosen_on = validation_split(recipe)
        if absent := sorted({"train", chosen_on} - set(stores)):
            raise EngramError(f"training needs the splits train and {chosen_on} but {absent[0]} was not given")
        self.recipe, self.settings, self.stores, self.folder, self.device = recipe, recipe.train, stores, folder, device
        self.method = build_method(recipe, stores["train"].image_shape, device, running.precision)
        if not self.method.card.trainable:
            raise EngramError(f"method '{recipe.method}' has nothing to train: bench it directly")
        self.revision = len(revisions(recipe))
        self.start = {"features": stores["train"].digest[:16]} if stores["train"].maker else {}
        check_base_classes(self.method, stores["train"])
        self.shares = share_out(recipe, self.method)
        if self.settings.freeze_backbone:
            self.method.backbone.requires_grad_(False)
        self.captured = device.type == "cuda" and not running.plain
        self.update = Update(self.method, self.settings, device, self.captured, running.micro_batch)
        self.protocol = training_protocol(recipe).for_store(stores["train"])
        check_ranges(stores["train"], self.protocol, training_ranges(recipe))
        self.validation = validation_protocol(recipe, self.method.card.batch_norm).for_store(stores[chosen_on])
        for protocol in (self.protocol, self.validation):
            check_can_answer(self.method, protocol)
        self.room, self.window, self.run_id = Room(device, running.store_memory), LossWindow(), new_run_id()
        self.iteration = self.first_iteration = self.best_iteration = 0
        self.saved = self.validated = -1
        self.resumed_from, self.learning_rate = "", self.settings.learning_rate
        self.curves: dict[str, list[float]] = {}
        self.best_accuracy: float | None = None
        self.as_it_came = AsItCame(folder)
        self.chosen: checkpoints.Chosen = "weights"
        self.earlier_seconds = self.earlier_validation_seconds = self.validation_seconds = 0.0

    def begin(self, resume: bool) -> None:
        """Start in a folder without a run, or go on from the last step of the run there."""
        last = last_step(self.folder)
        if last and not resume:
            raise EngramError(f"{self.folder} holds a run up to {last.name}: resume it, or choose another folder")
        saved = checkpoints.load(self.folder, "last", self.recipe.method) if resume else None
        if saved:
            digests = self.protocol.dataset_digest, self.validation.dataset_digest, self.start.get("teacher", "")
            check_same_run(saved, self.recipe, *digests)
        data, train_store = self.recipe.data, self.room.place(self.stores["train"])
        self.val_store = self.room.place(self.stores[validation_split(self.recipe)])
        train_store = self.room.fill(train_store)
        drawn = data.class_batch, training_ranges(self.recipe), Crop(data.crop_area, data.crop_aspect), self.shares
        self.source = BatchSource(train_store, self.protocol, data.augmentation, self.device, *drawn)
        self.stepper = Stepper(self.source, self.update, self.captured)
        if self.settings.average:
            self.update.average = Average(self.method, self.settings.average)
        torch.manual_seed(self.settings.seed)  # dropout and a method's own samples
        if saved:
            with checkpoints.whole(saved):
                self._restore(saved)
        self._training_mode()
        self.started = time.monotonic()

    def _training_mode(self) -> None:
        self.method.train()
        if self.settings.freeze_backbone or self.update.held:
            self.method.backbone.eval()  # else running statistics would still move, and dropout still drop

    def _restore(self, saved: checkpoints.Checkpoint) -> None:
        state = saved.state
        if not state.optimiser:
            raise EngramError(
                f"{saved.folder} holds weights alone, so it cannot be resumed: start from it with [backbone] weights"
            )
        checkpoints.load_weights(self.method, saved, "last")
        if self.update.average:
            self.update.average.restore(saved.tensors("average"), state.iteration)
        unpack_optimisers(self.update.optimisers, saved.tensors("optimiser"), state.optimiser)
        restore_random_state(self.source, saved.tensors("random"), state.numpy_generator, state.iteration)
        self.window.restore(state.window)
        self.curves, self.resumed_from, self.start = state.curves, state.run_id, state.start
        self.iteration = self.first_iteration = self.saved = state.iteration
        self.validated = int(self.curves["iteration"][-1]) if self.curves else -1
        if self.validated != self.iteration and "loss" not in self.window.means():
            raise ValueError("it has neither losses nor a validation of its last step")
        self.best_accuracy, self.best_iteration = state.best_accuracy, state.best_iteration
        self.chosen = state.chosen
        self.earlier_seconds = state.seconds
        self.validation_seconds = self.earlier_validation_seconds = state.validation_seconds

    def step(self, progress: float) -> None:
        """One update. Nothing here waits for the device."""
        settings = self.settings
        if self.update.hold(progress < settings.head_first):
            self.stepper.begin_anew()
        factor = learning_rate_factor(settings, self.iteration, progress)
        self.learning_rate = settings.learning_rate * factor
        for optimiser in self.update.optimisers:
            set_learning_rate(optimiser, factor)
        seed_step(settings.seed, self.iteration)
        names, values = self.stepper(progress)
        self.iteration += 1
        self.window.add(self.iteration, names, values)

    def read_losses(self, lag: bool = False) -> dict[str, float]:
        """The present losses, or without waiting for the device those before. One not finite ends the run here."""
        broken = self.window.read(lag)
        if broken is not None:
            key = self.method.card.inner_steps_key
            told, way_out = self.window.told(broken, getattr(self.method.config, key) if key else 1)
            raise EngramError(f"{told}; {self._kept(way_out)}")
        return self.window.recent()

    def check_weights(self) -> None:
        """A loss may be finite and its gradient not: look at the weights themselves before they are used or saved."""
        for name, value in self.method.state_dict().items():
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                raise EngramError(f"the weights ({name}) are not finite after step {self.iteration}: {self._kept()}")

    def _kept(self, way_out: str = LOWER_RATE) -> str:
        last = last_step(self.folder)
        kept = f"the last good checkpoint {last} is kept" if last else f"no checkpoint was written to {self.folder} yet"
        return f"{kept}; start again in another folder with {way_out}"

    def validate(self) -> Result:
        """Ask the frozen validation tasks, extend the curves and save. Training goes on as if nobody had asked.

        With an average both answer, the last weights and the averaged ones, and the result is that of the better.
        """
        self.check_weights()
        started = time.monotonic()
        ask = partial(evaluate, self.method, self.val_store, self.validation, self.device, share=processes.mine())
        self.chosen, result, apart = ask_both(ask, self.update.average)
        self._training_mode()
        self.validation_seconds += time.monotonic() - started
        losses = self.window.means()
        row = {"iteration": self.iteration, "loss": losses.pop("loss"), "learning_rate": self.learning_rate}
        row |= {f"train_{name}": value for name, value in losses.items()}
        told = {name: result.metrics.get(name) for name in ("accuracy", "interval", "edge_accuracy")}
        row |= {f"validation_{name}": value for name, value in told.items() if value is not None}
        for name, value in {**row, **apart}.items():
            self.curves.setdefault(name, []).append(value)
        self.window.reset()
        self.validated, accuracy = self.iteration, result.metrics["accuracy"]
        beats = self.as_it_came.is_beaten(result, self.val_store, self.update.held)
        if better := self.best_accuracy is None or (beats and accuracy > self.best_accuracy):
            self.best_accuracy, self.best_iteration = accuracy, self.iteration
        self.save(best=better)
        return result

    def save(self, best: bool = False) -> None:
        self.saved = self.iteration
        if not processes.is_first():
            return
        optimiser_tensors, optimiser_structure = pack_optimisers(self.update.optimisers)
        state = checkpoints.RunState(
            method=self.recipe.method,
            recipe=self.recipe.to_dict(),
            recipe_digest=self.recipe.digest,
            image_shape=self.stores["train"].image_shape,
            dataset_digest=self.protocol.dataset_digest,
            validation=self.validation.to_dict(),
            run_id=self.run_id,
            iteration=self.iteration,
            numpy_generator=dict(self.source.tasks_state),
            optimiser=optimiser_structure,
            curves=self.curves,
            window=self.window.state(),
            best_accuracy=self.best_accuracy,
            best_iteration=self.best_iteration,
            seconds=self.seconds,
            validation_seconds=self.validation_seconds,
            features=self.stores["train"].maker,
            revision=self.revision,
            start=self.start,
            chosen=self.chosen,
            processes=processes.mine().count,
        )
        values = self.method.state_dict(), optimiser_tensors, random_state(self.source)
        parts = dict(zip(checkpoints.PARTS, values, strict=True))
        if self.update.average:
            parts["average"] = self.update.average.state_dict()
        checkpoints.save(self.folder, state, parts, best)

    def load_best(self) -> None:
        """Put the best weights on validation, or their average where it was chosen, back into the method."""
        is_last = self.best_iteration == self.iteration and self.chosen == "weights"
        if self.best_accuracy is not None and not is_last and processes.is_first():
            best = checkpoints.load(self.folder / f"best-{self.best_iteration:08d}")
            checkpoints.load_weights(self.method, best)
            self.chosen = best.state.chosen
        processes.copy_from_first(list(self.method.state_dict().values()))

    @property
    def elapsed(self) -> float:
        """Seconds of this call."""
        return time.monotonic() - self.started

    @property
    def seconds(self) -> float:
        """Seconds of the run, with those of the calls it was resumed from."""
        return self.earlier_seconds + self.elapsed

    @property
    def steps_per_second(self) -> float:
        """Of this call, without its validations."""
        spent = self.elapsed - (self.validation_seconds - self.earlier_validation_seconds)
        return (self.iteration - self.first_iteration) / spent if spent > 0 else 0.0

    @property
    def tasks_per_second(self) -> float:
        lengths = self.recipe.data.stream_length_range or (self.recipe.data.stream_length,)
        return self.steps_per_second * self.settings.sequences * sum(lengths) / len(lengths)
