"""Where a call of training ends, and how its steps are made and shown."""

from __future__ import annotations

from dataclasses import dataclass

from engram.errors import EngramError


@dataclass(frozen=True)
class Limits:
    """Where a call ends before its recipe does."""

    max_minutes: float | None = None
    """wall time of this call, validations included"""
    max_iterations: int | None = None
    """counted from the start of the run, also where it is resumed"""
    whole_run: bool = False
    """max_minutes counts from the start of the run too: a time box that a stop and a resumption leave as it is"""

    def __post_init__(self) -> None:
        for name, value in (("max_minutes", self.max_minutes), ("max_iterations", self.max_iterations)):
            if value is not None and not value > 0:  # nan is refused too
                raise EngramError(f"{name} = {value} but it must be above 0")

    def share_spent(self, seconds: float) -> float:
        return 0.0 if self.max_minutes is None else seconds / (60 * self.max_minutes)

    def seconds_left(self, seconds: float) -> float:
        return float("inf") if self.max_minutes is None else 60 * self.max_minutes - seconds


@dataclass(frozen=True)
class Running:
    """How steps are made and shown. What is learned depends on none of it but precision and, by BatchNorm,
    micro_batch."""

    precision: str | None = None
    """in place of the recipe's"""
    plain: bool = False
    """without kernels of our own and captured steps"""
    micro_batch: int = 0
    """sequences that go through the model at a time; 0: all of a step"""
    store_memory: str | None = None
    """for the images, such as 2GB, on the GPU or of the machine; what is more is read from disk"""
    progress: bool = True
    """a bar on the terminal"""
    tensorboard: bool = True
    """event files in the run folder's ``tensorboard``"""


WHOLE, USUAL = Limits(), Running()
