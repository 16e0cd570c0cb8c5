"""Which of a method's rows its page opens with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from engram.protocol import agrees, describe_protocol
from engram.recipes.protocols import protocols_of
from engram.report.rows import ResultRow
from engram.studies.schema import Cell, load_study, study_names

FEW = 8
MAIN = "table1"
"""the study that names every system of the paper"""


def headline(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows of one method that a newcomer asks for, at most `FEW`; of equal ways and shots the newest first.

    Where there are no more, all. Else one for each recipe that a cell of `MAIN` shows (the paper's schedule where it
    has a run, else the first shorter one that has), then those that its cells set beside their figures. A method that
    is not there takes the cells of the other studies. A recipe's row is its answer to the first question it plans,
    after the longest training, the newest of equals. A method that no study names shows, for each dataset, ways, shots,
    kind of stream and backbone, the newest answer to the question with the fewest words.
    """
    if len(rows) <= FEW:
        return list(rows)
    answered = [row for row in rows if row.evaluation is not None]
    best = {row.record.recipe_today: row for row in sorted(answered, key=_rank)}
    for cells in _cells():
        shown = [name for cell in cells for name in _recorded((cell.recipe, *cell.short), best)[:1]]
        beside = [name for cell in cells for name in _recorded(cell.beside, best)]
        if shown or beside:
            return _ordered([best[name] for name in dict.fromkeys(shown + beside)][:FEW])
    kinds = {_kind(row): row for row in sorted(answered, key=lambda row: (-_clauses(row), row.record.started))}
    return _ordered(list(kinds.values()))[:FEW]


def _ordered(rows: Sequence[ResultRow]) -> list[ResultRow]:
    newest = sorted(rows, key=lambda row: row.record.started, reverse=True)
    return sorted(newest, key=lambda row: tuple(row.protocol.get(key) for key in ("dataset", "n_way", "n_shot")))


def _rank(row: ResultRow) -> tuple[bool, int, str]:
    first = protocols_of(row.record.recipe)[0].question
    return agrees(row.protocol, first), int(row.trained.get("iterations") or 0), row.record.started


def _clauses(row: ResultRow) -> int:
    return describe_protocol(row.protocol).count(",")


def _kind(row: ResultRow) -> tuple[object, ...]:
    asked = (row.protocol.get(key) for key in ("dataset", "n_way", "n_shot", "names", "erase_history"))
    return *asked, row.record.recipe.get("backbone")


def _recorded(names: Sequence[str], best: dict[str, ResultRow]) -> list[str]:
    return [name for name in names if name in best]


@cache
def _cells() -> tuple[list[Cell], list[Cell]]:
    """Of the main study, and of all others."""
    cells = {name: [cell for _, cell in load_study(name).cells()] for name in study_names()}
    return cells.pop(MAIN), [cell for found in cells.values() for cell in found]
