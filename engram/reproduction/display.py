"""What a person sees of a grid: what is there and what is missing with its time, then the runs as they go."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.status import Status

from engram.report.table import Column, Table
from engram.reproduction.plan import Plan, Planned
from engram.reproduction.process import Ended
from engram.studies.checks import missing_recipes
from engram.studies.schema import Study

SHOWN_ABSENT = 3


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h``, ``2.1 days``"""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def total_time(seconds: float, each: Sequence[float | None]) -> str:
    """``about 3.5 h and 2 of unknown time``"""
    unknown = sum(one is None for one in each)
    return f"about {duration(seconds)}" + (f" and {unknown} of unknown time" if unknown else "")


def show_plan(plan: Plan, console: Console, how: str) -> None:
    """Studies with their counts, the runs that are missing, what cannot be run here and why."""

    def jobs(study: Study, state: str) -> list[Planned]:
        return [p for p in plan.jobs if study.name in p.job.studies and p.state == state]

    def count(state: str) -> Column[Study]:
        return Column(state, lambda study: str(len(jobs(study, state))), right=True)

    def left(study: Study) -> str:
        waiting = jobs(study, "to run")
        return duration(sum(p.seconds or 0.0 for p in waiting)) if waiting else ""

    columns = (
        Column[Study]("study", lambda study: study.name, whole=True),
        *map(count, ("recorded", "to run", "no data")),
        Column("no recipe", lambda study: str(len(missing_recipes(study))), right=True),
        Column("time", left, right=True),
    )
    console.print(Table(columns, plan.studies, title=f"scale {plan.scale}").terminal())
    if plan.to_run:
        _show_missing(plan, console, how)
    _show_reasons(plan, console)


MISSING_COLUMNS: tuple[Column[Planned], ...] = (
    Column("run", lambda p: p.job.title),
    Column("time", lambda p: "unknown" if p.seconds is None else duration(p.seconds), right=True),
    Column("how it is known", lambda p: p.note),
)


def _show_missing(plan: Plan, console: Console, how: str) -> None:
    console.print(Table(MISSING_COLUMNS, plan.to_run, title="to run").terminal())
    time = total_time(plan.seconds, [p.seconds for p in plan.to_run])
    console.print(f"{len(plan.to_run)} runs, {time}, {how}", highlight=False)


def _show_reasons(plan: Plan, console: Console) -> None:
    for reason in dict.fromkeys(p.note for p in plan.jobs if p.state == "no data"):
        count = sum(p.note == reason for p in plan.jobs)
        console.print(f"no data: {reason} ({count} runs)", highlight=False, markup=False)
    sentences = list(plan.absent.values())
    for sentence in sentences[:SHOWN_ABSENT]:
        console.print(f"no recipe: {sentence}", highlight=False, markup=False)
    if len(sentences) > SHOWN_ABSENT:
        console.print(f"no recipe: and {len(sentences) - SHOWN_ABSENT} more", highlight=False)
    for problem in plan.problems:
        console.print(f"record: {problem}", highlight=False, markup=False)


class Progress:
    """Lines for the start and the end of each run; on a terminal also what the run says just now."""

    def __init__(self, jobs: Sequence[Planned], console: Console) -> None:
        self.jobs, self.console = list(jobs), console
        self.done, self.begun = 0, 0
        self.status = Status("", console=console) if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self.status:
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.status:
            self.status.stop()

    def start(self, planned: Planned) -> None:
        self.begun += 1
        left = duration(sum(p.seconds or 0.0 for p in self.jobs[self.done :]))
        self._line(f"[{self.begun}/{len(self.jobs)}] {_title(planned)}; about {left} of the grid left")

    def submitted(self, planned: Planned) -> None:
        self._line(f"submitted: {_title(planned)}")

    def say(self, line: str) -> None:
        if self.status:
            self.status.update(line[: self.console.width - 4].replace("[", r"\["))

    def end(self, planned: Planned, ended: Ended) -> None:
        self.done += 1
        why = f": {ended.sentence}" if ended.sentence else ""
        where = f" on {ended.node}" if ended.node else ""
        self._line(f"    {planned.job.title}: {ended.status} after {duration(ended.seconds)}{where}{why}")

    def left(self, planned: Planned, why: str) -> None:
        self.begun, self.done = self.begun + 1, self.done + 1
        self._line(f"    {planned.job.title}: left ({why})")

    def _line(self, words: str) -> None:
        self.console.print(words, highlight=False, markup=False, soft_wrap=True)


def _title(planned: Planned) -> str:
    return planned.job.title + ("" if planned.seconds is None else f", about {duration(planned.seconds)}")
