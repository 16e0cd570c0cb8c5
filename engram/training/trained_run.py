"""What a whole run leaves, and what there is to say of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engram.evaluation.evaluate import Result
from engram.ledger import RunRecord
from engram.types import Method


@dataclass(frozen=True, repr=False)
class TrainedRun:
    """What `engram.train` leaves: ``run.accuracy`` for short, ``run.method`` to go on with, ``run.folder`` to bench."""

    record: RunRecord
    record_file: Path
    method: Method
    """with the best weights on validation, in evaluation mode"""
    results: tuple[Result, ...]
    """one for each test protocol, with every answer; () where the run was not tested"""
    folder: Path
    """of its checkpoints, and of TensorBoard's event files in ``tensorboard``"""

    @property
    def accuracy(self) -> float | None:
        """Of the first test protocol, a fraction of 1; None where the run was not tested."""
        return self.record.accuracy

    @property
    def interval(self) -> float | None:
        """Half-width of the 95 % interval of `accuracy`."""
        return self.record.interval

    @property
    def remarks(self) -> tuple[str, ...]:
        """Whether training helped an encoder that was there before, and whether its minutes cut it short."""
        told, said = self.record.training, []
        before, best, gain = told.get("frozen_accuracy"), told["best_accuracy"], told.get("gain")
        by = gain and f"{100 * gain['difference']:+.2f} ± {100 * gain['interval']:.2f} points over {gain['classes']}"
        if before is not None and best > before:
            said.append(f"training helps: {by} validation classes, {before:.2%} with the encoder as it came")
        elif before is not None:
            why = f"{by} validation classes" if by else "the encoder was not trained yet"
            said.append(f"training does not help beyond chance: {why}; the encoder as it came, {before:.2%}, was kept")
        if told["stopped_by"] == "max_minutes":
            asked = self.record.recipe["train"]["iterations"]
            said.append(f"not all of its steps were made: the minutes ended at step {told['iterations']} of {asked}")
        return tuple(said)

    def __repr__(self) -> str:
        return f"TrainedRun({self.record.summary}, folder={str(self.folder)!r})"
