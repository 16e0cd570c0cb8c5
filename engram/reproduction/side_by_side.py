"""The default engine: runs on this machine, one after another or as many at a time as there is room for."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from engram.machine.cards import multi_process_service
from engram.machine.interruptions import StopRequest
from engram.reproduction.display import Progress
from engram.reproduction.local import run_job
from engram.reproduction.packing import Packing, Room
from engram.reproduction.plan import Place, Plan, Planned
from engram.reproduction.process import LOOK_EVERY, Ended, Reproduced


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
