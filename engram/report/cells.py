"""The cells of a study filled from the ledger: figure, interval, scale, protocol, audit, records, or what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engram.evaluation.metrics import in_last_quarter
from engram.ledger import Answer, Ledger, RunRecord, correctness
from engram.protocol import NOT_DRAWN
from engram.recipes import Recipe
from engram.recipes.schema import LENGTH, differences
from engram.report.rows import LOST, trained_part
from engram.report.statistics import Difference, Estimate, difference, estimate
from engram.studies.checks import missing_recipes
from engram.studies.jobs import recipe_called
from engram.studies.schema import Cell, ScaleName, Study

MOST_TOLD = 4
"""keys that a cell names one by one"""
WORDS = {"backbone.name": "backbone", "backbone.weights": "starting weights", "train.sequences": "batch size"}
WORDS |= {"data.n_shot": "training shots", "data.n_query": "training queries"}
CLEAN: Mapping[str, Any] = {"n_query": 15, "slot_order": "shuffled"}
"""how a model is asked cleanly, beside BatchNorm that sees no other query"""


@dataclass(frozen=True)
class Filled:
    """One cell. Without ``answers`` nothing is recorded: ``missing`` says why and ``command`` what to do."""

    study: str
    row: str
    cell: Cell
    recipe: Recipe | None
    folder: Path
    scale: ScaleName = "short"
    answers: Mapping[int, list[Answer]] = field(default_factory=dict)
    """seed -> answers to the protocols of the question, the first is the cell's figure"""
    as_paper: Mapping[int, Answer] = field(default_factory=dict)
    """seed -> the same weights asked as the paper's figure was, where that is recorded"""
    clean: Mapping[int, Answer] = field(default_factory=dict)
    """seed -> the same weights asked `CLEAN`, each query normalised without the others, where that is recorded"""
    centroid: tuple[Answer, Answer] | None = None
    """of a head over features: its answer to some tasks, and that of nearest centroid over the same features to them"""
    audit: RunRecord | None = None
    missing: str = ""
    command: str = ""
    lost: tuple[str, ...] = ()
    """runs of its recipes that are left out: their per-task results cannot be read"""
    others: tuple[Filled, ...] = ()
    """the same cell as other recipes of it fill it: for comparisons over equally many iterations"""
    beside: tuple[Filled, ...] = ()
    """the same cell as recipes fill it that the published figure is set beside, such as one trained as the reference"""

    @property
    def iterations(self) -> int:
        """Training steps of the first seed; 0 where nothing was trained."""
        return int(self.first[0].training.get("iterations") or 0)

    @property
    def first(self) -> list[Answer]:
        return [answers[0] for answers in self.answers.values()]

    @cached_property
    def values(self) -> list[np.ndarray]:
        """For each seed the measure of every sequence."""
        return self.values_of(self.first)

    def values_of(self, answers: Sequence[Answer]) -> list[np.ndarray]:
        """The measure of every sequence of other answers than those shown, such as those asked as the paper's were."""
        return [measured(correctness(a.evaluation, self.folder), self.cell.measure) for a in answers]

    @cached_property
    def estimate(self) -> Estimate | None:
        return estimate(self.values) if self.answers else None

    @property
    def frozen(self) -> bool:
        """The encoder was not trained with the rest, or not in the weights that were kept."""
        return self.first[0].encoder_kept

    @property
    def protocol(self) -> Mapping[str, Any]:
        return self.first[0].evaluation.protocol if self.answers else {}

    @property
    def in_class_order(self) -> bool:
        """The order of its queries revealed their labels."""
        return self.protocol.get("slot_order") == "class-order"

    @property
    def questions(self) -> tuple[Any, ...]:
        """Equal for two cells that answered the same tasks in the same order of time, however slots were listed."""
        return tuple(sorted((k, v) for k, v in self.protocol.items() if v and k not in NOT_DRAWN))

    @property
    def without(self) -> str:
        return f"run {', '.join(self.lost)} is left out, {LOST}" if self.lost else ""


CellMap = Mapping[tuple[str, str], Filled]
"""(row, column) -> cell"""


def scale_text(cell: Filled) -> str:
    """``full schedule, 70,000 iterations``, ``short, 4,176 of 8,000 iterations, frozen encoder``

    What a short run changed beside its length is told, that its encoder was not trained with the rest (given features,
    or kept as it was), that a head was trained on features of a part of the images, and a change of the method since.
    """
    planned = cell.first[0].record.recipe["train"]
    words = ["full schedule" if cell.scale == "paper" else "short"]
    if cell.first[0].training.get("iterations") is not None:
        done = f"{cell.iterations:,} of " if cell.iterations < planned["iterations"] else ""
        words.append(f"{done}{planned['iterations'] if done else cell.iterations:,} iterations")
    words += ["frozen encoder"] if cell.frozen else []
    return ", ".join([*words, *other_training(cell)])


def other_training(cell: Filled) -> list[str]:
    """What else a run did otherwise than the whole schedule: settings, the images a head saw, an earlier revision."""
    answer, words = cell.first[0], list[str]()
    if cell.scale == "short" and cell.recipe and cell.cell.recipe and cell.recipe.name != cell.cell.recipe:
        words += _other_settings(cell.recipe, recipe_called(cell.cell.recipe), cell.frozen)
    words += [f"head trained on {part}"] if (part := trained_part(answer.training)) else []
    words += [f"revision {answer.record.revision}, before a change of the method"] if answer.since else []
    return words


def _other_settings(recipe: Recipe, whole: Recipe, frozen: bool) -> list[str]:
    """``other augmentation, batch size``, or the tables where more than `MOST_TOLD` keys differ."""
    told = {*LENGTH, *({"backbone.weights", "train.freeze_backbone"} if frozen else ())}
    changed = [key for key in differences(recipe, whole) if key not in told]
    keys = [key for key in changed if not key.startswith("test.")]  # the protocol tells those
    words = [WORDS.get(key, key.split(".")[1].replace("_", " ")) for key in keys]
    if len(keys) > MOST_TOLD:
        words = [", ".join(dict.fromkeys(key.split(".")[0] for key in keys)) + " settings"]
    return [f"other {', '.join(words)}"] if words else []


def measured(correct: np.ndarray, measure: str) -> np.ndarray:
    """(sequences, steps, queries) -> (sequences,)"""
    part = {"first": correct[:, :1], "last": correct[:, -1:]}.get(measure, correct)
    part = in_last_quarter(correct) if measure == "last_quarter" else part
    return np.asarray(part.reshape(len(part), -1).mean(1))


def fill(study: Study, ledger: Ledger, folder: Path, lost: Sequence[RunRecord] = ()) -> dict[tuple[str, str], Filled]:
    """(row, column) -> the cell: scale paper where it is recorded, else scale short, else what to do."""
    absent = missing_recipes(study)
    blank = []
    for row, cell in study.cells():
        left_out = tuple(r.run_id for r in lost if r.recipe_today in (cell.recipe, *cell.short))
        blank.append(Filled(study.name, row.label, cell, None, folder, lost=left_out))
    return {(c.row, c.cell.column): _recorded(c, ledger, absent) or _missing(c, study, ledger, absent) for c in blank}


def _recorded(blank: Filled, ledger: Ledger, absent: Mapping[str, str]) -> Filled | None:
    cell, found = blank.cell, []
    tries: list[tuple[str, ScaleName]] = [(cell.recipe, "paper"), *((n, "short") for n in cell.short)]
    for name, scale in [*tries, (cell.recipe, "short")]:
        filled = _by_recipe(blank, name, scale, ledger) if name and name not in absent else None
        found += [filled] if filled else []
    beside = [_by_recipe(blank, name, "short", ledger) for name in cell.beside if name not in absent]
    shown = [*found, *filter(None, beside)][:1]
    return replace(shown[0], others=tuple(found[1:]), beside=tuple(filter(None, beside))) if shown else None


def _by_recipe(blank: Filled, name: str, scale: ScaleName, ledger: Ledger) -> Filled | None:
    """The cell as one recipe fills it."""
    cell, recipe = blank.cell, recipe_called(name)
    if not (answers := ledger.answers(recipe, tuple(sorted(cell.ask.items())), scale)):
        return None
    as_paper = _of_same_tasks({s: ledger.asked_as(given[0], cell.paper_ask) for s, given in answers.items()})
    clean = _of_same_tasks({s: _cleanly(given[0], ledger) for s, given in answers.items()})
    filled = replace(blank, recipe=recipe, scale=scale, answers=answers, as_paper=as_paper, clean=clean)
    return replace(filled, audit=ledger.audit(recipe), centroid=_centroid(filled, ledger))


def _of_same_tasks(answers: Mapping[int, Answer | None]) -> dict[int, Answer]:
    """Those that were asked the tasks of the last of them: seeds are averaged over the same tasks alone."""
    given = {seed: answer for seed, answer in answers.items() if answer}
    tasks = [answer.evaluation.tasks_digest for answer in given.values()][-1:]
    return {seed: answer for seed, answer in given.items() if answer.evaluation.tasks_digest in tasks}


def _cleanly(answer: Answer, ledger: Ledger) -> Answer | None:
    """The same weights asked cleanly: a recipe that normalises queries together may have been asked otherwise too."""
    norm = answer.evaluation.protocol.get("batch_norm")
    clean = (norm,) if norm != "task" else ("support", "running")
    found = (ledger.asked_as(answer, {**CLEAN, "batch_norm": how}) for how in clean)
    return next(filter(None, found), None)


def _centroid(cell: Filled, ledger: Ledger) -> tuple[Answer, Answer] | None:
    asked = [*cell.as_paper.values(), *cell.clean.values(), *cell.first]
    pairs = ((answer, ledger.nearest_centroid(answer)) for answer in asked)
    return next(((own, other) for own, other in pairs if other), None)


def _missing(blank: Filled, study: Study, ledger: Ledger, absent: Mapping[str, str]) -> Filled:
    names = [n for n in (*blank.cell.short, blank.cell.recipe) if n and n not in absent]
    if not names:
        return replace(blank, missing="no recipe yet" if blank.cell.recipe else "not in the paper")
    scale: ScaleName = "short" if names[0] in blank.cell.short else "paper"
    recipe, command = recipe_called(names[0]), f"engram reproduce {study.called} --scale {scale}"
    failed = [r for r in ledger.records if r.status == "failed" and r.recipe_today == recipe.name]
    why = blank.without or (f"failed: {failed[-1].error}" if failed else "not run")
    return replace(blank, recipe=recipe, scale=scale, missing=why, command=command)


class Compared(NamedTuple):
    """Two recorded cells and their difference."""

    first: Filled
    second: Filled
    found: Difference


def compare(first: Filled, second: Filled) -> Compared | None:
    """First minus second over the seeds each has, paired where both answered the same tasks; None if one is empty.

    Each as a recipe of equally many iterations fills it, where there are such; else as it is shown.
    """
    if not first.answers or not second.answers:
        return None
    pairs = ((a, b) for a in (first, *first.others) for b in (second, *second.others) if a.iterations == b.iterations)
    one, other = next(pairs, (first, second))
    return Compared(one, other, difference(one.values, other.values, one.questions == other.questions))


def comparisons(study: Study, cells: CellMap) -> list[Compared]:
    """Every comparison that a study declares whose two cells are recorded."""
    asked = [(pair, column) for pair in study.comparisons for column in pair.columns or study.columns]
    both = ((cells.get((pair.first, column)), cells.get((pair.second, column))) for pair, column in asked)
    return [found for first, second in both if first and second and (found := compare(first, second))]
