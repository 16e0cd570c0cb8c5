"""What papers say, as data: claims, a sentence each with where it stands and what decides it; and figures by recipe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from engram.errors import EngramError, nearest
from engram.files import read_toml
from engram.structure import structure
from engram.studies.schema import CLAIMS, STUDIES_FOLDER, Cell, Study, load_study, study_names


@dataclass(frozen=True)
class ClaimTest:
    kind: Literal["higher", "reaches", "steadier", "early", "audit"] = "higher"
    study: str = ""
    first: str = ""
    """row"""
    second: str = ""
    column: str = ""
    second_column: str = ""
    """default: the column of the first"""
    within: float = 0.0
    """points below the paper's figure that still count as reached"""
    recipe: str = ""
    probe: str = ""
    """of an audit"""
    label: str = ""
    claimed: float = 0.0
    """points that the paper claims, where they are not the difference of its two figures"""
    decides: bool = True


@dataclass(frozen=True)
class Claim:
    text: str
    where: str
    tests: tuple[ClaimTest, ...]
    why: str = ""
    """a remark that stands with the finding"""


def load_claims(studies: dict[str, Study], path: Path = STUDIES_FOLDER / f"{CLAIMS}.toml") -> list[Claim]:
    """The claims, each test checked against the rows and columns of its study."""
    raw = read_toml(path, "list of claims")
    claims = []
    for number, table in enumerate(raw["claim"], 1):
        where = f"{path.name} [[claim]] {number}"
        tests = tuple(structure(test, ClaimTest, f"{where}, test {n}") for n, test in enumerate(table["tests"], 1))
        for test in tests:
            _check(test, studies, where)
        plain: dict[str, Any] = {key: value for key, value in table.items() if key != "tests"}
        claims.append(Claim(tests=tests, **plain))
    return claims


def _check(test: ClaimTest, studies: dict[str, Study], where: str) -> None:
    if test.kind == "audit":
        return
    if test.study not in studies:
        raise EngramError(f"{where}: there is no study '{test.study}'{nearest(test.study, studies)}")
    cells = {(row.label, cell.column) for row, cell in studies[test.study].cells()}
    wanted = [(test.first, test.column)]
    if test.second:
        wanted.append((test.second, test.second_column or test.column))
    for row, column in wanted:
        if (row, column) not in cells:
            raise EngramError(
                f"{where}: {test.study} has no cell '{row}', '{column}'{nearest(row, {r for r, _ in cells})}"
            )


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
