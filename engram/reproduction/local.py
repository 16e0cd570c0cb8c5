"""The default engine: runs on this machine, each in a process of its own, one after another or as many at a time as
there is room for; and the commands of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from engram.card import revisions_of
from engram.errors import EngramError
from engram.ledger import new_record, read_record, run_stem
from engram.ledger import write_record as write
from engram.machine.cards import multi_process_service
from engram.machine.interruptions import StopRequest
from engram.recipes.protocols import Ask
from engram.reproduction.display import Progress
from engram.reproduction.packing import Packing, Room
from engram.reproduction.plan import Place, Plan, Planned, checkpoint_state
from engram.reproduction.process import LOOK_EVERY, Command, Ended, Reproduced, run_commands
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
    stem = run_stem(job.recipe.method, job.recipe.name)
    found = [p for p in place.results.glob(f"{stem}.*.json") if p.stat().st_mtime >= began - 1]
    newest = ""
    for path in sorted(found, key=lambda p: p.stat().st_mtime):
        with suppress(EngramError):
            record = read_record(path)
            if record.recipe_digest == job.recipe.digest:
                newest = record.status
    return newest


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


def run_here(
    plan: Plan, place: Place, packing: Packing, outcome: Reproduced, budget: float | None, console: Console
) -> None:
    """Run what is missing; each run has a process of its own, and a thread here that looks after it."""
    deadline = float("inf") if budget is None else time.monotonic() + 60 * budget
    shared = any(room.is_gpu and room.at_once > 1 for room in packing.rooms)
    with multi_process_service() if shared else nullcontext("") as why:
        if why:
            packing = packing.without_service()
            told = "one run at a time on each GPU" if packing.in_turn else "side by side, but hardly sooner"
            console.print(f"CUDA MPS cannot be started ({why}): {told}", highlight=False, markup=False)
        with StopRequest() as stop, Progress(plan.to_run, console) as progress:
            grid = _Grid(plan, place, packing, outcome, deadline, stop, progress)
            with ThreadPoolExecutor(max(1, len(plan.to_run))) as threads:
                grid.run(threads)


@dataclass
class _Grid:
    plan: Plan
    place: Place
    packing: Packing
    outcome: Reproduced
    deadline: float
    stop: StopRequest
    progress: Progress
    running: dict[Future[Ended], tuple[Planned, Room]] = field(default_factory=dict)
    written: dict[Path, Planned] = field(default_factory=dict)
    """features that are not there yet, and the run that is writing them"""
    broken: bool = False

    def run(self, threads: ThreadPoolExecutor) -> None:
        try:
            self._run(threads)
        except BaseException:  # a second Ctrl-C, too: no run goes on without somebody who waits for it
            self.broken = True
            raise

    def _run(self, threads: ThreadPoolExecutor) -> None:
        waiting = list(self.plan.to_run)
        while waiting or self.running:
            for planned in list(waiting):
                if why := self._why_left(planned):
                    waiting.remove(planned)
                    self.outcome.left.append(planned.job.title)
                    self.progress.left(planned, why)
                elif not self._has_to_wait(planned, waiting) and (room := self.packing.enter(planned)):
                    waiting.remove(planned)
                    self._start(planned, room, threads)
            self._gather()

    def _why_left(self, planned: Planned) -> str:
        broken = self._needed(planned, [*self.outcome.failed, *self.outcome.left])
        if broken:
            return f"needs {broken}"
        late = time.monotonic() + (planned.seconds or 0.0) > self.deadline
        return "stopped" if self.stop.requested else "no budget" if late else ""

    def _needed(self, planned: Planned, titles: list[str]) -> str:
        """Of some runs the one whose weights this one starts from."""
        needed = [p.job for p in self.plan.to_run if planned.after and p.job.folder == planned.after]
        return next((job.title for job in needed if job.title in titles), "")

    def _has_to_wait(self, planned: Planned, waiting: list[Planned]) -> bool:
        """For its encoder, or for features that another run is writing."""
        others = [p for p, _ in self.running.values()]
        waits = self._needed(planned, [p.job.title for p in (*waiting, *others)])
        return bool(waits) or (planned.job.features and self.place.features(planned.job) in self.written)

    def _start(self, planned: Planned, room: Room, threads: ThreadPoolExecutor) -> None:
        self.progress.start(planned)
        if planned.job.features and not (features := self.place.features(planned.job)).exists():
            self.written[features] = planned
        there = replace(self.place, device=room.name, threads=room.threads)
        run = threads.submit(run_job, planned, there, self._should_stop, self.progress.say)
        self.running[run] = planned, room

    def _should_stop(self) -> bool:
        return self.broken or self.stop.requested or time.monotonic() > self.deadline

    def _gather(self) -> None:
        done, _ = wait(self.running, LOOK_EVERY, FIRST_COMPLETED)
        for run in done:
            planned, room = self.running.pop(run)
            self.packing.leave(planned, room)
            self.written = {path: by for path, by in self.written.items() if by is not planned}
            ended = run.result()
            self.progress.end(planned, ended)
            self.outcome.add(planned.job.title, ended)
