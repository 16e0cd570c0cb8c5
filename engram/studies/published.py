"""Published figures by recipe: the cell of the paper's tables that a recipe is set beside."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from engram.studies.schema import Cell, load_study, study_names


class Published(NamedTuple):
    table: str
    """``Table 1``"""
    cell: Cell


@cache
def published_figures() -> dict[str, Published]:
    """Recipe -> figure. A cell that names it in ``beside`` goes first, then one whose recipe it is, then ``short``.

    Of several such cells the first one counts, in the order of the tables.
    """
    studies = [load_study(name) for name in study_names()]
    cells = [Published(s.title.partition(":")[0], cell) for s in studies for _, cell in s.cells() if cell.paper]
    found: dict[str, Published] = {}
    for key in ("beside", "recipe", "short"):
        for published in cells:
            names = getattr(published.cell, key)
            for name in (names,) if isinstance(names, str) else names:
                found.setdefault(name, published)
    return found
