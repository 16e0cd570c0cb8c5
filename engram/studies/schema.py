"""A study is a grid in TOML: rows and columns as in the original, a recipe and the paper's figure in each cell.

This file says which keys it may have and what they mean. A row's settings hold for its cells; a cell's own go first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from engram.errors import EngramError, nearest
from engram.files import read_toml
from engram.structure import structure
from engram.studies.checks import check_study

STUDIES_FOLDER = Path(__file__).parent
CLAIMS = "claims"
"""the one TOML file of the folder that is no study"""

ScaleName = Literal["short", "paper"]
Measure = Literal["accuracy", "first", "last", "last_quarter"]
T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """How much is run: [short] for minutes on one GPU, [paper] for the paper's schedule."""

    seeds: tuple[int, ...] = (111,)
    minutes: float = 0.0
    """a training run stops here and is then tested; 0 = the recipe's iterations"""


@dataclass(frozen=True)
class Cell:
    """One figure of a table: what is trained, what it is asked, and what the paper says."""

    column: str
    recipe: str = ""
    """trained at scale paper"""
    short: tuple[str, ...] = ()
    """recipes of scale short: the first is run, the first with records is shown"""
    paper: float = 0.0
    """accuracy in the original's table in %; 0 = none"""
    interval: float = 0.0
    published: float = 0.0
    """the figure in the system's own paper or code for this setting; 0 = none"""
    published_interval: float = 0.0
    paper_note: str = ""
    """what to know of the published figure"""
    trained_on: str = ""
    """classes that the published model was trained on, where they are more than those of the training split"""
    stand_in: str = ""
    """backbone that counts as equal to the published one, which is larger than can be trained here"""
    beside: tuple[str, ...] = ()
    """further recipes that the figure is set beside; the study runs none of them"""
    paper_ask: dict[str, Any] = field(default_factory=dict)
    """keys of the test protocol that the paper's figure was measured with, as far as they are known and matter"""
    ask: dict[str, Any] = field(default_factory=dict)
    """keys of the test protocol in place of the recipe's, such as slot_order = "shuffled": one more bench"""
    measure: Measure = "accuracy"
    """over all tasks of a stream, its first, its last, or the last quarter"""
    train: bool = True
    """false: a method without weights, which is only asked"""
    features: bool = False
    """on frozen features of the recipe's backbone weights rather than on images"""
    encoder: str = ""
    """recipe that makes the backbone weights where they are not there yet; default: the one their folder is named by"""
    picture: bool = False
    """keep one answered task with its graph, for the report"""
    minutes: float | None = None
    """time box of scale short in place of the study's; 0 = none"""

    @property
    def paper_text(self) -> str:
        """``88.62 ± 0.43``; "" for none"""
        return _plus_minus(self.paper, self.interval)

    @property
    def published_text(self) -> str:
        return _plus_minus(self.published, self.published_interval)

    def recipes(self, scale: ScaleName) -> tuple[str, ...]:
        """Recipes of a scale, the one that is run first; empty where the cell has none at that scale."""
        return self.short if scale == "short" else (self.recipe,) if self.recipe else ()


def _plus_minus(figure: float, interval: float) -> str:
    return (f"{figure:.2f} ± {interval:.2f}" if interval else f"{figure:.2f}") if figure else ""


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[Cell, ...]
    group: str = ""
    """heading above this row and the following ones of the same group"""
    backbone: str = ""
    """as the original prints it"""
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """A paired difference between two rows, where both answered the same tasks."""

    first: str
    second: str
    columns: tuple[str, ...] = ()
    """default: all"""


@dataclass(frozen=True)
class Study:
    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    kind: Literal["table", "training", "stream"] = "table"
    """table: accuracies; training: validation over training too; stream: accuracy along a stream too"""
    description: str = ""
    comparisons: tuple[Comparison, ...] = ()
    short: Scale = field(default_factory=Scale)
    paper: Scale = field(default_factory=Scale)
    where: str = ""
    """the file, for messages"""
    own: bool = False
    """a file of the user's, not one of the box"""

    @property
    def called(self) -> str:
        """What a command calls it."""
        return self.where if self.own else self.name.replace("_", "-")

    def scale(self, name: ScaleName) -> Scale:
        return self.short if name == "short" else self.paper

    def cells(self) -> list[tuple[Row, Cell]]:
        return [(row, cell) for row in self.rows for cell in row.cells]


OWN = ("column", "paper", "interval", "published", "published_interval", "beside")
INHERITED = tuple(f.name for f in fields(Cell) if f.name not in OWN)
"""keys a row may give for all of its cells"""


def study_from_dict(raw: dict[str, Any], name: str, where: str, own: bool = False) -> Study:
    """A study from parsed TOML: ``title``, ``columns``, ``[short]``, ``[paper]``, ``[[row]]``, ``[[compare]]``."""
    known = ("title", "description", "kind", "columns", "short", "paper", "row", "compare")
    for key in raw:
        if key not in known:
            raise EngramError(f"{where}: unknown key '{key}'{nearest(key, known)}")
    for key in ("title", "columns", "row"):
        if key not in raw:
            raise EngramError(f"{where}: '{key}' is missing; a study has {', '.join(known)}")
    scales = {s: structure(_table(raw.get(s, {}), where, s), Scale, f"{where} [{s}]") for s in ("short", "paper")}
    rows = tuple(_row(table, f"{where} [[row]] {n}") for n, table in enumerate(_tables(raw, "row", where), 1))
    pairs = [
        structure(table, Comparison, f"{where} [[compare]] {n}")
        for n, table in enumerate(_tables(raw, "compare", where), 1)
    ]
    plain: dict[str, Any] = {k: raw[k] for k in ("title", "description", "kind", "columns") if k in raw}
    heading = structure({**plain, "name": name, "rows": (), "where": where, "own": own}, Study, where)
    study = replace(heading, rows=rows, comparisons=tuple(pairs), short=scales["short"], paper=scales["paper"])
    check_study(study)
    return study


def _row(table: dict[str, Any], where: str) -> Row:
    given = {key: table[key] for key in INHERITED if key in table}
    cells = tuple(
        _cell({**given, **cell, "ask": {**given.get("ask", {}), **cell.get("ask", {})}}, f"{where}, cell {n}")
        for n, cell in enumerate(_tables(table, "cells", where), 1)
    )
    own = {key: value for key, value in table.items() if key not in (*INHERITED, "cells")}
    return replace(structure({**own, "cells": ()}, Row, where), cells=cells)


def _cell(table: dict[str, Any], where: str) -> Cell:
    short = table.get("short", ())
    return structure({**table, "short": [short] if isinstance(short, str) else short}, Cell, where)


def _table(value: Any, where: str, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise EngramError(f"{where}: {key} = {value!r} does not fit; it takes a table, [{key}]")
    return value


def _tables(raw: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    value = raw.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise EngramError(f"{where}: {key} = {value!r} does not fit; it takes a list of tables")
    return value


def load_study(name_or_path: str) -> Study:
    """A study by its name (``table1``, ``order-leak``) or by the path of a TOML file."""
    path, own = Path(name_or_path), True
    if path.suffix != ".toml":
        name, own = name_or_path.replace("-", "_"), False
        path = STUDIES_FOLDER / f"{name}.toml"
        if name not in study_names():
            raise EngramError(f"there is no study '{name_or_path}'{nearest(name, [*study_names(), 'all'])}")
    return study_from_dict(read_toml(path, "study"), path.stem, path.name, own)


def studies_called(name: str) -> list[str]:
    """``all``; a name or a file as it is; ``memory-stream`` for all of ``memory_stream_...``."""
    known, plain = study_names(), name.replace("-", "_")
    if name == "all":
        return known
    kin = [n for n in known if n.startswith(f"{plain}_")]
    return kin if kin and plain not in known else [name]


def study_names() -> list[str]:
    return sorted(p.stem for p in STUDIES_FOLDER.glob("*.toml") if p.stem != CLAIMS)
