"""The whole of `engram reproduce`: match, list what is missing, run it, draw the report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console

from engram.errors import EngramError
from engram.ledger import check_results_folder
from engram.reproduction.display import duration, show_plan
from engram.reproduction.local import run_here
from engram.reproduction.packing import Packing, count_of, rooms_of
from engram.reproduction.plan import Place, Plan, make_plan
from engram.reproduction.process import Reproduced
from engram.reproduction.still_open import show_open
from engram.studies.checks import check_recipes
from engram.studies.schema import ScaleName, Study, load_study, studies_called

REPORT = Path("results/report.html")
EngineName = Literal["local", "ray"]


def reproduce(
    studies: Sequence[str] = ("all",),
    *,
    dry_run: bool = False,
    budget: float | None = None,
    seeds: Sequence[int] = (),
    device: str = "auto",
    scale: ScaleName = "short",
    engine: EngineName = "local",
    address: str = "auto",
    per_gpu: str = "1",
    data: Path | None = None,
    results: Path = Path("results/runs"),
    runs: Path = Path("runs"),
    report: Path = REPORT,
) -> Reproduced:
    """Run what the studies miss and draw the report; with everything recorded nothing is run.

    ``budget`` is in minutes, for the whole call: runs that do not fit are left, one under way is saved at its end.
    ``per_gpu`` runs share a GPU, or the cores of a machine without one; "auto" goes by what their records tell.
    """
    chosen = open_studies(studies)
    folder = data or (Path(os.environ["ENGRAM_DATA"]).expanduser() if os.environ.get("ENGRAM_DATA") else None)
    place = Place(results, runs, folder, device)
    check_seeds(seeds)
    plan = make_plan(chosen, scale, seeds, place)
    console, outcome = Console(), Reproduced(plan)
    here = "one after another" if count_of(per_gpu) == 1 else "side by side as far as they fit"
    show_plan(plan, console, "in all, shared out over the cluster" if engine == "ray" else here)
    if len(chosen) == 1:
        show_open(chosen[0], place, console)
    packing = Packing(plan, rooms_of(place, per_gpu) if engine == "local" else [], per_gpu)
    if plan.to_run and not packing.in_turn:
        packing.show(console)
    if dry_run:
        return outcome
    check_results_folder(results)
    check_budget(plan, budget)
    if plan.to_run and engine == "ray":
        from engram.reproduction.cluster import run_on_cluster

        run_on_cluster(plan, place, address, outcome, budget, console, per_gpu)
    elif plan.to_run:
        run_here(plan, place, packing, outcome, budget, console)
    outcome.report = draw(chosen, results, report)
    _tell(outcome, console)
    return outcome


def open_studies(names: Sequence[str]) -> list[Study]:
    """The studies named, each once; ``all`` is every study of the box."""
    if not names:
        raise EngramError("which study? Give one or more of engram reproduce --help, a TOML file, or all")
    called = dict.fromkeys(full for name in names for full in studies_called(name))
    found = [load_study(name) for name in called]
    for study in found:
        check_recipes(study)
    return found


def check_seeds(seeds: Sequence[int]) -> None:
    if any(seed < 0 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise EngramError(f"seeds = {', '.join(map(str, seeds))} but they must be different and at least 0")


def check_budget(plan: Plan, budget: float | None) -> None:
    """Refuse a budget in which no run would end, before anything is started."""
    if budget is None or not plan.to_run:
        return
    known = [p for p in plan.to_run if p.seconds is not None]
    shortest = min(known, key=lambda p: p.seconds or 0.0, default=None)
    if not budget > 0:  # nan is refused too
        raise EngramError(f"budget = {budget:g} minutes but it must be above 0")
    if shortest and len(known) == len(plan.to_run) and (shortest.seconds or 0.0) > 60 * budget:
        raise EngramError(
            f"a budget of {budget:g} minutes is too small for one run: the shortest missing one, {shortest.job.title}, "
            f"takes about {duration(shortest.seconds or 0.0)}; give more, or see engram reproduce --dry-run"
        )


def draw(studies: Sequence[Study], results: Path, report: Path) -> Path:
    from engram.report.report_page import write_report

    return write_report(studies, results, report)


def _tell(outcome: Reproduced, console: Console) -> None:
    done = f"{len(outcome.finished)} finished" if outcome.plan.to_run else "nothing to run: everything is recorded"
    console.print(f"{done}, {len(outcome.failed)} failed, {len(outcome.left)} left" if outcome.plan.to_run else done)
    for title, sentence in outcome.failed.items():
        console.print(f"failed: {title}: {sentence}", markup=False, highlight=False)
    console.print(f"report: {outcome.report}", highlight=False)
