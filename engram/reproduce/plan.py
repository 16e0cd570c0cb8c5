"""What a study still needs: each job as recorded, to run, or not to be had here, with the time it will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engram.reproduce.estimate import START, StepTimes
from engram.reproduce.place import Place, checkpoint_state, why_no_data
from engram.studies.jobs import Job, jobs_of
from engram.studies.matching import Ledger
from engram.studies.questions import Ask
from engram.studies.records import conflicts, trusted_records
from engram.studies.schema import ScaleName, Study

State = Literal["recorded", "to run", "no data"]


@dataclass(frozen=True)
class Planned:
    job: Job
    state: State
    asks: tuple[Ask, ...] = ()
    """what is still to be asked"""
    train: bool = False
    """whether it has to be trained, or trained on, first"""
    seconds: float | None = None
    """estimated; None = nothing is known"""
    note: str = ""


@dataclass(frozen=True)
class Plan:
    studies: tuple[Study, ...]
    scale: ScaleName
    jobs: tuple[Planned, ...]
    absent: dict[str, str]
    """recipes that do not exist -> a sentence"""
    problems: tuple[str, ...]
    """a sentence for each record that is left out, and for each two that disagree"""

    @property
    def to_run(self) -> list[Planned]:
        return [p for p in self.jobs if p.state == "to run"]

    @property
    def seconds(self) -> float:
        return sum(p.seconds or 0.0 for p in self.to_run)


def make_plan(studies: Sequence[Study], scale: ScaleName, seeds: Sequence[int], place: Place) -> Plan:
    """Match every job of the studies with the ledger; nothing is changed and nothing imports torch."""
    records, problems = trusted_records(place.results)
    ledger = Ledger(records)
    jobs, absent = jobs_of(studies, scale, seeds)
    times, reasons = StepTimes(ledger, place.on_gpu), {}
    planned = []
    for job in jobs:
        if job.dataset not in reasons:
            reasons[job.dataset] = why_no_data(job.dataset, place.data)
        planned.append(_planned(job, ledger, times, place, reasons[job.dataset]))
    kept = _without_idle_encoders(planned)
    return Plan(tuple(studies), scale, tuple(kept), absent, (*problems, *conflicts(records)))


def _planned(job: Job, ledger: Ledger, times: StepTimes, place: Place, reason: str) -> Planned:
    seed = job.recipe.train.seed
    missing = tuple(ask for ask in job.asks if seed not in ledger.answers(job.recipe, ask, job.scale))
    if job.folder and not Path(job.folder).exists():
        missing = job.asks  # recorded, but a head needs the weights themselves
    if not missing:
        return Planned(job, "recorded")
    if reason:
        return Planned(job, "no data", missing, note=reason)
    state = checkpoint_state(place.folder(job)) if job.train else None
    trained = not job.train or (state is not None and _is_finished(job, state, ledger))
    asks = missing if trained or state else job.asks  # one model answers all, or they could not be compared
    seconds, note = _estimated(job, asks, trained, state, times)
    return Planned(job, "to run", asks, not trained, seconds, note)


def _estimated(
    job: Job, asks: Sequence[Ask], trained: bool, state: dict[str, object] | None, times: StepTimes
) -> tuple[float | None, str]:
    benches = START * (len(asks) + (not trained)) + sum(times.bench(job, ask) for ask in asks)
    if trained:
        return benches, "trained, to be asked" if job.train else "asked only"
    spent = float(str(state["seconds"])) if state else 0.0
    estimate = times.training(job, spent)
    words = [f"goes on from iteration {state['iteration']:,}"] if state else []
    if estimate is None:
        return None, "; ".join([*words, "time unknown: no run of this recipe or backbone on this kind of device"])
    words.append(f"from steps of {estimate.source}" if estimate.source else "its time box")
    return benches + estimate.seconds, "; ".join(words)


def _is_finished(job: Job, state: dict[str, object], ledger: Ledger) -> bool:
    """Whether the checkpoint is that of a run the ledger has as finished; at scale paper, with all its iterations."""
    seed, settings = job.recipe.train.seed, job.recipe.train
    done = [r for r in ledger.runs(job.recipe) if r.kind == "train" and r.recipe["train"]["seed"] == seed]
    enough = job.scale == "short" or int(str(state["iteration"])) >= settings.iterations
    return enough and any(r.training.get("iterations") == state["iteration"] for r in done)


def _without_idle_encoders(planned: Sequence[Planned]) -> list[Planned]:
    """An encoder is trained only for heads that are to run."""
    wanted = {p.job.recipe.backbone_weights for p in planned if p.state == "to run" and p.job.features}
    return [p for p in planned if not p.job.folder or p.job.folder in wanted or p.state == "no data"]
