"""What a study still needs: each job as recorded, to run, or not to be had here, with the time it will take; and what
lies where a call works: its folders, checkpoints and data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from engram.data.catalogue import find_form
from engram.data.formats.folder import FolderOptions
from engram.errors import EngramError
from engram.files import located, read_json
from engram.ledger import Answer, Ledger, conflicts, trusted_records
from engram.recipes.protocols import Ask
from engram.reproduction.estimate import START, StepTimes, Use
from engram.studies.jobs import Job, jobs_of
from engram.studies.schema import ScaleName, Study


@dataclass(frozen=True)
class Place:
    """The folders and the device of a call."""

    results: Path = Path("results/runs")
    runs: Path = Path("runs")
    data: Path | None = None
    device: str = "auto"
    threads: int = 0
    """of a run on the CPU; 0: as its environment says"""

    def folder(self, job: Job) -> Path:
        return Path(job.folder) if job.folder else self.runs / job.key

    def features(self, job: Job) -> Path:
        return self.runs / "features" / Path(job.recipe.backbone_weights).name

    @property
    def on_gpu(self) -> bool:
        """Told without torch: whether the device files of a GPU are there."""
        if self.device == "auto":
            return Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists()
        return self.device != "cpu"


def checkpoint_state(folder: Path) -> dict[str, Any] | None:
    """The state of a run folder's newest checkpoint: iteration, seconds, run_id; None where there is none."""
    steps = sorted(folder.glob("step-*/state.json"))
    try:
        state = read_json(steps[-1]) if steps else None
    except (OSError, ValueError):
        return None
    if not isinstance(state, dict) or type(state.get("iteration")) is not int:
        return None
    return state if isinstance(state.get("seconds", 0.0), int | float) else None


def why_no_data(dataset: str, data: Path | None) -> str:
    """Why a dataset cannot be read here; "" where it can."""
    try:
        find_form(dataset, data, FolderOptions())
    except EngramError as error:
        return str(error).split(": ")[0] if data is None else str(error).split(": looked")[0]
    return ""


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
    after: str = ""
    """run folder of a job to run before it, whose weights it starts from"""
    use: Use | None = None
    """what a run like it took of its device; None = nothing is known"""


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
    times = StepTimes(ledger, place.on_gpu)
    reasons = {dataset: why_no_data(dataset, place.data) for dataset in {job.dataset for job in jobs}}
    missing = _missing(jobs, ledger, place)
    planned = [
        _planned(job, missing[job.key], ledger, times, place, reasons[job.dataset])
        for job in jobs
        if job.key in missing
    ]
    digests = {job.recipe.digest for job in jobs}
    asked = [record for record in records if record.recipe_digest in digests]
    return Plan(tuple(studies), scale, _with_order(planned, place), absent, (*problems, *conflicts(asked)))


def _missing(jobs: Sequence[Job], ledger: Ledger, place: Place) -> dict[str, tuple[Ask, ...]]:
    """What each job is still to be asked; no entry for one whose weights alone are wanted, and are there or not used.

    Weights that others start from are made again where they are gone, though all their answers are recorded.
    """
    found = {}
    for job in (j for j in jobs if j.cell):
        seed = job.recipe.train.seed
        found[job.key] = tuple(a for a in job.asks if not _answered(ledger.answers(job.recipe, a, job.scale).get(seed)))
    while True:  # what makes weights may start from others itself
        wanted = {_starts_from(job, place) for job in jobs if found.get(job.key)}
        makers = [job for job in jobs if job.folder and job.folder in wanted and not found.get(job.key)]
        more = {job.key: job.asks for job in makers if not _has_weights(job, ledger)}
        if not more:
            return found
        found |= more


def _answered(answers: Sequence[Answer] | None) -> bool:
    """Whether a question is answered as the method behaves today."""
    return answers is not None and not any(answer.since for answer in answers)


def _planned(
    job: Job, missing: tuple[Ask, ...], ledger: Ledger, times: StepTimes, place: Place, reason: str
) -> Planned:
    if not missing:
        return Planned(job, "recorded")
    if reason:
        return Planned(job, "no data", missing, note=reason)
    state = checkpoint_state(place.folder(job)) if job.train else None
    trained = not job.train or (state is not None and _is_finished(job, state, ledger))
    asks = missing if trained or state else job.asks  # one model answers all, or they could not be compared
    seconds, note = _estimated(job, asks, trained, state, times)
    return Planned(job, "to run", asks, not trained, seconds, note, use=times.use(job))


def _estimated(
    job: Job, asks: Sequence[Ask], trained: bool, state: dict[str, object] | None, times: StepTimes
) -> tuple[float | None, str]:
    benches = START * (len(asks) + (not trained)) + sum(times.bench(job, ask) for ask in asks)
    if trained:
        return benches, "trained, to be asked" if job.train else "asked only"
    spent = float(str(state.get("seconds", 0.0))) if state else 0.0
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


def _starts_from(job: Job, place: Place) -> str:
    """The weights a job reads when it is run; "" where it has features, or a checkpoint of its own. Without any, those
    of its teacher.

    Features carry no classifier: a job that begins with stage one's reads the weights beside them.
    """
    begun = bool(job.train and checkpoint_state(place.folder(job)))
    handed_on = job.recipe.method_settings.get("base_start") == "stage_one"
    has_own = place.features(job).exists() and (begun or not handed_on) if job.features else begun
    weights = "" if has_own else job.recipe.backbone_weights
    return weights or (job.recipe.train.teacher if job.train else "")


def _has_weights(job: Job, ledger: Ledger) -> bool:
    """Whether weights lie in the folder of a job. Those of its own unfinished run, which can go on, do not count."""
    folder = located(Path(job.folder))
    state = checkpoint_state(folder)
    if state is None:
        return any(folder.glob("best-*/state.json")) or (folder / "state.json").is_file()
    can_go_on = state.get("optimiser") and state.get("recipe_digest") == job.recipe.digest
    is_whole = int(state["iteration"]) >= job.recipe.train.iterations
    return is_whole or not can_go_on or _is_finished(job, state, ledger)


def _with_order(planned: Sequence[Planned], place: Place) -> tuple[Planned, ...]:
    """Each with the run it waits for: one of this plan that makes the weights it starts from."""
    made = {p.job.folder for p in planned if p.state == "to run" and p.job.folder}
    return tuple(replace(p, after=w) if (w := _starts_from(p.job, place)) in made else p for p in planned)
