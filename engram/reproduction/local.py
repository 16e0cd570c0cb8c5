"""The default engine: one run after another on this machine, each in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engram.errors import EngramError
from engram.ledger import RunRecord, current_commit, new_run_id, read_record, run_stem, software_versions, utc_now
from engram.ledger import write_record as write
from engram.reproduction.place import Place, checkpoint_state
from engram.reproduction.plan import Planned
from engram.reproduction.process import Ended, run_commands
from engram.reproduction.steps import commands_of
from engram.revisions import revisions_of
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
        finished=lambda: _newest_status(job, place, began) == "finished",
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
    record = RunRecord(
        run_id=new_run_id(),
        kind="train" if job.train and ended.step != "bench" else "bench",
        status="failed",
        method=recipe.method,
        recipe_name=recipe.name,
        recipe=recipe.to_dict(),
        recipe_digest=recipe.digest,
        seed=recipe.train.seed,
        started=utc_now(),
        seconds=round(ended.seconds, 3),
        commit=current_commit(),
        device=place.device,
        versions=software_versions(),
        training={key: state[key] for key in ("iteration", "seconds") if key in state},
        error=ended.sentence,
        note=f"study {', '.join(job.studies)}",
        revision=len(revisions_of(recipe.method, recipe.method_settings)),
    )
    write(place.results, record)
