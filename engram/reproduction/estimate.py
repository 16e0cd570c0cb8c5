"""How long a job takes, from step times that records measured: of the same recipe, else of the most alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engram.ledger import Ledger, RunRecord
from engram.recipes.protocols import Ask
from engram.recipes.schema import digest_of
from engram.studies.jobs import Job

START = 8.0
"""seconds to start a process and open the data"""
ONE_BENCH = 30.0
"""seconds for a bench nothing is known of"""


@dataclass(frozen=True)
class Estimate:
    seconds: float
    source: str
    """where it comes from, in words; "" = nothing is known and the time box stands for it"""


@dataclass(frozen=True)
class Use:
    """What a run took of its device."""

    memory_mib: float
    power_share: float | None
    """of the GPU's power; None: not recorded"""
    source: str


def images_per_step(recipe: Mapping[str, Any]) -> int:
    data, train = recipe["data"], recipe["train"]
    tasks = train["sequences"] * data["stream_length"]
    return int(tasks * data["n_way"] * (data["n_shot"] + data["n_query"]) + data.get("class_batch", 0))


class StepTimes:
    """Measured seconds per step of one kind of device, GPU or CPU."""

    def __init__(self, ledger: Ledger, on_gpu: bool) -> None:
        self.ledger = ledger
        runs = [r for r in ledger.records if r.kind == "train" and r.training.get("iterations")]
        self.runs = [r for r in runs if r.training.get("seconds") and r.device.startswith("cpu") != on_gpu]

    def seconds_per_step(self, job: Job) -> tuple[float, str] | None:
        """Of the newest run of the recipe; else of the same method, else of the same backbone, scaled by images."""
        for source, runs, images in self._alike(job):
            if runs:
                newest = runs[-1]
                rate = newest.training["seconds"] / newest.training["iterations"]
                return rate * images / max(1, images_per_step(newest.recipe)), source
        return None

    def use(self, job: Job) -> Use | None:
        """Of the newest run alike that was looked at; more memory for more images, and never less for fewer."""
        for source, runs, images in self._alike(job):
            told = [(r.training.get("device_use") or {}, images_per_step(r.recipe)) for r in runs]
            if known := [(use, seen) for use, seen in told if use.get("peak_memory_mib")]:
                use, seen = known[-1]
                memory = use["peak_memory_mib"] * max(1.0, images / max(1, seen))
                return Use(memory, use.get("power_share"), source)
        return None

    def _alike(self, job: Job) -> Iterator[tuple[str, list[RunRecord], int]]:
        """Runs like a job, the most alike first, in words and with the images of one of the job's steps."""
        settings = job.recipe.to_dict()
        digest, images = digest_of(settings, without_seed=True), images_per_step(settings)
        yield "this recipe", [r for r in self.runs if digest_of(r.recipe, without_seed=True) == digest], images
        alike = [r for r in self.runs if _same_encoder(r, settings)]
        yield "this method", [r for r in alike if r.method == job.recipe.method], images
        yield "this backbone", alike, images

    def training(self, job: Job, spent: float) -> Estimate | None:
        """Of what is left of the training; None where neither a step time nor a time box is known."""
        box = max(0.0, 60 * job.minutes - spent) if job.minutes else None
        measured = self.seconds_per_step(job)
        if measured is None:
            return None if box is None else Estimate(box, "")
        left = max(0.0, measured[0] * job.recipe.train.iterations - spent)
        return Estimate(left if box is None else min(left, box), measured[1])

    def bench(self, job: Job, ask: Ask) -> float:
        """Of the newest answer to this very question, any seed, else a guess."""
        answers = [a for found in self.ledger.answers(job.recipe, ask, "short").values() for a in found]
        return sum(a.evaluation.seconds for a in answers[-2:]) if answers else ONE_BENCH


def _same_encoder(record: RunRecord, settings: Mapping[str, Any]) -> bool:
    same = record.recipe.get("backbone") == settings["backbone"]
    return same and record.recipe["data"]["dataset"] == settings["data"]["dataset"]
