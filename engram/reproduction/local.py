"""The default engine: one run after another on this machine, each in a process of its own, and the commands of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engram.card import revisions_of
from engram.errors import EngramError
from engram.ledger import new_record, read_record, run_stem
from engram.ledger import write_record as write
from engram.recipes.protocols import Ask
from engram.reproduction.plan import Place, Planned, checkpoint_state
from engram.reproduction.process import Command, Ended, run_commands
from engram.studies.jobs import Job


def run_job(
    planned: Planned,
    place: Place,
    should_stop: Callable[[], bool] = lambda: False,
    on_line: Callable[[str], None] = lambda line: None,
) -> Ended:
    """Run one job to its end, to a failure, which is recorded, or to a stop, from which it can be resumed."""
    job, began = planned.job, time.time()
    ended = run_commands(
        commands_of(planned, place),
        place.runs / "logs" / f"{job.key}.txt",
        should_stop,
        on_line,
        {"OMP_NUM_THREADS": str(place.threads)} if place.threads else {},
    )
    if ended.status == "failed" and _newest_status(job, place, began) != "failed":
        record_failure(job, place, ended)
    return ended


def _newest_status(job: Job, place: Place, began: float) -> str:
    """Status of the newest record of the job since it began; "" where it has none."""
    newest = ""
    for path in _records_since(job, place.results, began):
        with suppress(EngramError):
            record = read_record(path)
            if record.recipe_digest == job.recipe.digest:
                newest = record.status
    return newest


def _records_since(job: Job, results: Path, began: float) -> list[Path]:
    stem = run_stem(job.recipe.method, job.recipe.name)
    found = [p for p in results.glob(f"{stem}.*.json") if p.stat().st_mtime >= began - 1]
    return sorted(found, key=lambda p: p.stat().st_mtime)


def record_failure(job: Job, place: Place, ended: Ended) -> None:
    """A failed run is a row too, also where it ended before it could write its own record."""
    recipe = job.recipe
    state = checkpoint_state(place.folder(job)) or {}
    record = new_record(
        "train" if job.train and ended.step != "bench" else "bench",
        recipe,
        place.device,
        len(revisions_of(recipe.method, recipe.method_settings)),
        status="failed",
        seconds=round(ended.seconds, 3),
        training={key: state[key] for key in ("iteration", "seconds") if key in state},
        error=ended.sentence,
        note=f"study {', '.join(job.studies)}",
    )
    write(place.results, record)


def commands_of(planned: Planned, place: Place) -> list[Command]:
    """``engram`` commands, in order; looked up where they run, so that a run goes on from what lies there."""
    job, commands = planned.job, []
    shared = _shared(job, place)
    if job.features and not place.features(job).exists():
        weights, out = job.recipe.backbone_weights, str(place.features(job))
        commands.append(("features", weights, out, *_data(place), "--device", place.device, *_trust(job)))
    if planned.train:
        commands.append(_train(planned, place, shared))
    commands += [_bench(job, ask, place, shared) for ask in planned.asks if ask or not planned.train]
    if job.picture and job.train and not job.features:
        picture = place.results.parent / "pictures" / f"{job.key}.npz"
        where = (str(place.folder(job)), str(picture), *_data(place), "--device", place.device)
        commands.append(("picture", *where, *_trust(job)))
    return commands


def _shared(job: Job, place: Place) -> Command:
    features = ("--features", str(place.features(job))) if job.features else ()
    note = ("--note", f"study {', '.join(job.studies)}")
    return (*_data(place), "--results", str(place.results), "--device", place.device, *features, *note, *_trust(job))


def _trust(job: Job) -> Command:
    """A class that the study's own recipe names is one that its author wants to run."""
    return ("--trust-code",) if ":" in job.recipe.method + job.recipe.backbone else ()


def _data(place: Place) -> Command:
    return ("--data", str(place.data)) if place.data else ()


def _train(planned: Planned, place: Place, shared: Command) -> Command:
    job = planned.job
    folder = place.folder(job)
    box = ("--max-minutes", f"{job.minutes:g}", "--whole-run") if job.minutes else ()
    resume = ("--resume",) if checkpoint_state(folder) else ()
    no_test = () if () in planned.asks else ("--no-test",)
    seed = ("--seed", str(job.recipe.train.seed))
    return ("train", job.source, *seed, "--out", str(folder), *box, *resume, *no_test, *shared)


def _bench(job: Job, ask: Ask, place: Place, shared: Command) -> Command:
    model = (str(place.folder(job)),) if job.train else (job.recipe.method, "--recipe", job.source)
    changes: list[str] = []
    for key, value in ask:
        flag = f"--{key.replace('_', '-')}"
        changes += ([flag] if value else []) if isinstance(value, bool) else [flag, str(value)]
    return ("bench", *model, *changes, *shared)
