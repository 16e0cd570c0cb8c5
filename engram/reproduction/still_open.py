"""What of a study does not reach its published figures yet: each cell with its verdict, what would settle it, and how
long that takes. The verdicts are those of the tables."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from engram.card import method_cards
from engram.ledger import Ledger, trusted_records
from engram.recipes import Recipe
from engram.report.cells import Filled, fill
from engram.report.table import Column, Table
from engram.report.verdicts import Verdict, against_paper, like_paper, verdict
from engram.reproduction.display import duration, total_time
from engram.reproduction.estimate import ONE_BENCH, START, StepTimes
from engram.reproduction.plan import Place, checkpoint_state, make_plan
from engram.studies.jobs import Job, recipe_called, with_seed
from engram.studies.schema import Study

QUERIES = "--query-statistics queries"
NO_REFERENCE = "no recipe yet is trained as published"


@dataclass(frozen=True)
class OpenCell:
    cell: Filled
    verdict: Verdict
    what: str
    """that would settle it; "" where all there is to run is recorded"""
    seconds: float | None
    """estimated; None = nothing is known"""

    @property
    def time(self) -> str:
        return "" if not self.what else "unknown" if self.seconds is None else duration(self.seconds)


def open_cells(study: Study, place: Place) -> list[OpenCell]:
    """Cells with a published figure that ours is neither within nor above, in the study's order."""
    ledger = Ledger(trusted_records(place.results)[0])
    times, seed = StepTimes(ledger, place.on_gpu), study.paper.seeds[0]
    planned = {p.job.recipe.name: p for p in make_plan([study], "paper", (seed,), place).to_run}
    found = []
    for cell in fill(study, ledger, place.results).values():
        if not cell.cell.paper or (told := verdict(cell)).reached:
            continue
        what, seconds = f"{cell.cell.recipe}, whole schedule", None
        if (whole := planned.get(cell.cell.recipe)) is not None:
            seconds = whole.seconds
        elif cell.answers and cell.scale == "paper":
            what, seconds = "", 0.0
        else:  # what it lacks, such as data, the plan tells
            seconds = _seconds(recipe_called(cell.cell.recipe), seed, times, study)
        if _to_be_asked_otherwise(cell):
            what, seconds = _asked_together(cell, times, place, study)
        elif _is_trained_otherwise(cell):
            reference = _trained_together(cell)
            what = f"{reference.name}, trained as published" if reference else NO_REFERENCE
            seconds = _seconds(reference, seed, times, study) if reference else None
        found.append(OpenCell(cell, told, what, seconds))
    return found


def _to_be_asked_otherwise(cell: Filled) -> bool:
    """Its weights can be asked as the published ones were: queries of a task normalised together, or not."""
    beside = against_paper(cell)
    card = method_cards().get(cell.recipe.method) if cell.recipe else None
    return bool(beside and beside.apart and card and card.query_statistics and "batch_norm" in cell.cell.paper_ask)


def _is_trained_otherwise(cell: Filled) -> bool:
    """The published figure is of a model that normalised together in training too: no other can be asked so."""
    card = method_cards().get(cell.recipe.method) if cell.recipe else None
    asked_so = cell.cell.paper_ask.get("batch_norm") == "task"
    return bool(asked_so and card and card.task_norm_key and not like_paper(cell).as_paper)


def _trained_together(cell: Filled) -> Recipe | None:
    """The recipe beside the figure that alone can be asked as it was: it has a task's images normalised together."""
    for recipe in map(recipe_called, cell.cell.beside):
        card = method_cards().get(recipe.method)
        if card and card.task_norm_key and recipe.method_settings.get(card.task_norm_key) == "task":
            return recipe
    return None


def _seconds(recipe: Recipe, seed: int, times: StepTimes, study: Study) -> float | None:
    """Of training, and of one bench after it."""
    trained = times.training(Job(with_seed(recipe, seed), ((),), (study.name,), source=recipe.name), 0.0)
    return None if trained is None else trained.seconds + 2 * START + ONE_BENCH


def _asked_together(cell: Filled, times: StepTimes, place: Place, study: Study) -> tuple[str, float | None]:
    """One more bench; where the weights are gone, after training them again."""
    assert cell.recipe is not None
    job = Job(with_seed(cell.recipe, cell.first[-1].seed), ((),), (study.name,), source=cell.recipe.name)
    if checkpoint_state(place.folder(job)):
        return f"{cell.recipe.name} asked with {QUERIES}", START + ONE_BENCH
    seconds = _seconds(cell.recipe, job.recipe.train.seed, times, study)
    return f"{cell.recipe.name} trained again, then {QUERIES}", seconds


OPEN_COLUMNS: tuple[Column[OpenCell], ...] = (
    Column("open", lambda line: f"{line.cell.row}, {line.cell.cell.column}"),
    Column("verdict", lambda line: line.verdict.words),
    Column("what to run next", lambda line: line.what or "nothing: the whole schedule is recorded"),
    Column("time", lambda line: line.time, right=True),
)


def show_open(study: Study, place: Place, console: Console) -> None:
    """The open cells, and the time of all of them together."""
    lines = open_cells(study, place)
    published = sum(bool(cell.paper) for _, cell in study.cells())
    if not published:
        return
    if lines:
        console.print(Table(OPEN_COLUMNS, lines, title="against the published figures").terminal())
    seconds = sum({line.what: line.seconds or 0.0 for line in lines}.values())
    time = total_time(seconds, [line.seconds for line in lines])
    told = f"{len(lines)} of {published} figures are open, {time}"
    console.print(told if lines else f"all {published} published figures are reached", highlight=False)
