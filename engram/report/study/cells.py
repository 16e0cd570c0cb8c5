"""The cells of a study filled from the ledger: figure, interval, scale, protocol, audit, records, or what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engram.card import Revision
from engram.evaluation.metrics import in_last_quarter
from engram.ledger import Answer, Ledger, RunRecord, correctness
from engram.protocol import NOT_DRAWN
from engram.recipes import Recipe
from engram.recipes.names import LENGTH, differences
from engram.recipes.protocols import Ask
from engram.report.rows import trained_part
from engram.report.statistics import Difference, Estimate, difference, estimate
from engram.studies.checks import missing_recipes
from engram.studies.jobs import recipe_called
from engram.studies.schema import Cell, Comparison, ScaleName, Study

MOST_TOLD = 4
"""keys that a cell names one by one"""
WORDS = {"backbone.name": "backbone", "backbone.weights": "starting weights", "train.sequences": "batch size"}
WORDS |= {"data.n_shot": "training shots", "data.n_query": "training queries"}


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
    audit: RunRecord | None = None
    missing: str = ""
    command: str = ""
    others: tuple[Filled, ...] = ()
    """the same cell as other recipes of it fill it: for comparisons over equally many iterations"""

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
        return [measured(correctness(a.evaluation, self.folder), self.cell.measure) for a in self.first]

    @cached_property
    def estimate(self) -> Estimate | None:
        return estimate(self.values) if self.answers else None

    @property
    def protocol(self) -> Mapping[str, Any]:
        return self.first[0].evaluation.protocol if self.answers else {}

    @property
    def questions(self) -> tuple[Any, ...]:
        """Equal for two cells that answered the same tasks in the same order of time, however slots were listed."""
        drawn = ((key, value) for key, value in self.protocol.items() if value and key not in NOT_DRAWN)
        return tuple(sorted(drawn))

    @property
    def frozen(self) -> bool:
        """Whether the encoder was not trained with the rest: given features, or kept as it was."""
        answer = self.first[0]
        return bool(answer.training.get("features") or answer.record.recipe["train"].get("freeze_backbone"))

    @property
    def since(self) -> tuple[Revision, ...]:
        """Changes of the method's behaviour that came after these runs."""
        return self.first[0].since if self.answers else ()

    @property
    def cut(self) -> str:
        """``3,606 of 30,000 iterations`` where training stopped before its recipe's end; "" otherwise."""
        answer = self.first[0]
        done, planned = answer.training.get("iterations"), answer.record.recipe["train"]["iterations"]
        return f"{done:,} of {planned:,} iterations" if done is not None and done < planned else ""


def scale_text(cell: Filled) -> str:
    """``full schedule, 70,000 iterations``, ``short, 4,176 of 8,000 iterations, frozen encoder``

    A head that was trained on features of a part of the images says so.
    """
    scale = "full schedule" if cell.scale == "paper" else "short"
    length = cell.cut or (f"{cell.iterations:,} iterations" if cell.iterations else "")
    part = trained_part(cell.first[0].training)
    encoder = "frozen encoder" if cell.frozen else ""
    revision = f"revision {cell.first[0].record.revision}, before a change of the method" if cell.since else ""
    words = scale, length, encoder, _other_settings(cell), f"head trained on {part}" if part else "", revision
    return ", ".join(word for word in words if word)


def _other_settings(cell: Filled) -> str:
    """What a short run changed beside its length: ``other augmentation, batch size``, or the tables."""
    if cell.scale == "paper" or cell.recipe is None or not cell.cell.recipe or cell.recipe.name == cell.cell.recipe:
        return ""
    told = {*LENGTH, *({"backbone.weights", "train.freeze_backbone"} if cell.frozen else ())}
    changed = [key for key in differences(cell.recipe, recipe_called(cell.cell.recipe)) if key not in told]
    keys = [key for key in changed if not key.startswith("test.")]  # the protocol tells those
    words = [WORDS.get(key, key.split(".")[1].replace("_", " ")) for key in keys]
    if len(keys) > MOST_TOLD:
        words = [", ".join(dict.fromkeys(key.split(".")[0] for key in keys)) + " settings"]
    return f"other {', '.join(words)}" if words else ""


def measured(correct: np.ndarray, measure: str) -> np.ndarray:
    """(sequences, steps, queries) -> (sequences,)"""
    part = {"first": correct[:, :1], "last": correct[:, -1:]}.get(measure, correct)
    part = in_last_quarter(correct) if measure == "last_quarter" else part
    return np.asarray(part.reshape(len(part), -1).mean(1))


def fill(study: Study, ledger: Ledger, folder: Path) -> dict[tuple[str, str], Filled]:
    """(row, column) -> the cell: scale paper where it is recorded, else scale short, else what to do."""
    absent = missing_recipes(study)
    return {
        (row.label, cell.column): _filled(study, row.label, cell, ledger, folder, absent) for row, cell in study.cells()
    }


def _filled(study: Study, row: str, cell: Cell, ledger: Ledger, folder: Path, absent: Mapping[str, str]) -> Filled:
    ask: Ask = tuple(sorted(cell.ask.items()))
    tries: list[tuple[str, ScaleName]] = [(cell.recipe, "paper"), *((n, "short") for n in cell.short)]
    found = []
    for name, scale in [*tries, (cell.recipe, "short")]:
        if not name or name in absent:
            continue
        recipe = recipe_called(name)
        if answers := ledger.answers(recipe, ask, scale):
            like = {seed: ledger.asked_as(given[0], cell.paper_ask) for seed, given in answers.items()}
            as_paper = {seed: answer for seed, answer in like.items() if answer}
            found.append(Filled(study.name, row, cell, recipe, folder, scale, answers, as_paper, ledger.audit(recipe)))
    return replace(found[0], others=tuple(found[1:])) if found else _empty(study, row, cell, folder, absent, ledger)


def _empty(study: Study, row: str, cell: Cell, folder: Path, absent: Mapping[str, str], ledger: Ledger) -> Filled:
    names = [n for n in (*cell.short, cell.recipe) if n and n not in absent]
    if not names:
        why = "no recipe yet" if cell.recipe else "not in the paper"
        return Filled(study.name, row, cell, None, folder, missing=why)
    scale: ScaleName = "short" if names[0] in cell.short else "paper"
    where = study.where if study.own else study.name.replace("_", "-")
    command = f"engram reproduce {where} --scale {scale}"
    recipe = recipe_called(names[0])
    failed = [r for r in ledger.records if r.status == "failed" and r.recipe_today == recipe.name]
    why = f"failed: {failed[-1].error}" if failed else "not run"
    return Filled(study.name, row, cell, recipe, folder, scale, missing=why, command=command)


def alike(first: Filled, second: Filled) -> tuple[Filled, Filled]:
    """The two cells as recipes of equally many iterations fill them, where there are such; else as they are shown."""
    if not first.answers or not second.answers:
        return first, second
    pairs = ((a, b) for a in (first, *first.others) for b in (second, *second.others) if a.iterations == b.iterations)
    return next(pairs, (first, second))


def compare(first: Filled, second: Filled) -> Difference | None:
    """First minus second over the seeds each has, paired where both answered the same tasks; None if one is empty."""
    if not first.answers or not second.answers:
        return None
    return difference(first.values, second.values, first.questions == second.questions)


class Compared(NamedTuple):
    """A comparison a study declares, whose two cells are recorded."""

    pair: Comparison
    column: str
    first: Filled
    second: Filled
    found: Difference


def comparisons(study: Study, cells: Mapping[tuple[str, str], Filled]) -> Iterator[Compared]:
    for pair in study.comparisons:
        for column in pair.columns or study.columns:
            first, second = cells.get((pair.first, column)), cells.get((pair.second, column))
            if not first or not second:
                continue
            first, second = alike(first, second)
            if found := compare(first, second):
                yield Compared(pair, column, first, second, found)
