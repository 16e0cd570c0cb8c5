"""Claims of the paper as data: a sentence, where it stands, and the tests that decide it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engram.errors import EngramError, nearest
from engram.structure import structure
from engram.studies.schema import CLAIMS, STUDIES_FOLDER, Study


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
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
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
