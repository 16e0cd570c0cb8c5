"""What of a study cannot work, found before anything is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engram.card import method_cards
from engram.errors import EngramError, nearest
from engram.protocol import ASKED, CHOICES
from engram.recipes import load_recipe, recipe_names
from engram.spellings import name_today

if TYPE_CHECKING:
    from engram.studies.schema import Row, Study

KNOWN_OF_PAPERS = (*ASKED, "batch_norm")
"""keys of a protocol that a published figure may have been measured with"""


def check_study(study: Study) -> None:
    """One sentence with the file, the row and the key; recipes are checked apart, by `missing_recipes`."""
    where = study.where
    if not study.columns or not study.rows:
        raise EngramError(f"{where}: a study needs at least one column and one row")
    labels = [row.label for row in study.rows]
    for label in labels:
        if labels.count(label) > 1:
            raise EngramError(f"{where}: two rows are called '{label}': give each its own label")
    for row in study.rows:
        _check_row(study, row, where)
    for scale in (study.short, study.paper):
        if not scale.seeds or len(set(scale.seeds)) < len(scale.seeds) or min(scale.seeds) < 0:
            raise EngramError(f"{where}: seeds = {list(scale.seeds)} but they must be different and at least 0")
        if not scale.minutes >= 0:  # nan is refused too
            raise EngramError(f"{where}: minutes = {scale.minutes} but at least 0 is needed")
    for pair in study.comparisons:
        for label in (pair.first, pair.second):
            if label not in labels:
                raise EngramError(f"{where} [[compare]]: there is no row '{label}'{nearest(label, labels)}")
        _check_columns(study, pair.columns, f"{where} [[compare]]")


def _check_row(study: Study, row: Row, where: str) -> None:
    place = f"{where}, row '{row.label}'"
    columns = [cell.column for cell in row.cells]
    _check_columns(study, columns, place)
    if len(set(columns)) < len(columns):
        raise EngramError(f"{place}: two cells stand in one column: {', '.join(columns)}")
    for cell in row.cells:
        if not 0 <= cell.paper <= 100:
            raise EngramError(f"{place}: paper = {cell.paper} but an accuracy lies between 0 and 100")
        _check_asked("ask", cell.ask, ASKED, place)
        _check_asked("paper_ask", cell.paper_ask, KNOWN_OF_PAPERS, place)


def _check_asked(table: str, asked: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    for key, value in asked.items():
        if key not in known:
            raise EngramError(f"{place}: {table} has the unknown key '{key}'{nearest(key, known)}")
        if key in CHOICES and value not in CHOICES[key]:
            choices = " or ".join(map(repr, CHOICES[key]))
            raise EngramError(f"{place}: {table} has {key} = {value!r}; it takes {choices}")
        if key not in CHOICES and not isinstance(value, bool | int | float):
            raise EngramError(f"{place}: {table} has {key} = {value!r}; it takes a number")


def _check_columns(study: Study, columns: tuple[str, ...] | list[str], place: str) -> None:
    for column in columns:
        if column not in study.columns:
            raise EngramError(f"{place}: there is no column '{column}'{nearest(column, study.columns)}")


def missing_recipes(study: Study) -> dict[str, str]:
    """Each recipe the study names that does not exist -> one sentence; a path of a TOML file is looked up as it is."""
    known = set(recipe_names())
    found: dict[str, str] = {}
    for row, cell in study.cells():
        for name in (cell.recipe, *cell.short, cell.encoder):
            if name and name_today(name) not in {*known, *found} and not name.endswith(".toml"):
                hint = nearest(name, known) if study.own else " yet"
                found[name] = f"{study.where}, row '{row.label}': there is no recipe '{name}'{hint}"
    return found


def check_recipes(study: Study) -> None:
    """A study of the user's must name recipes that exist; one of the box keeps the rows of systems still to come.

    Every published protocol must be one that its method can follow.
    """
    missing = missing_recipes(study)
    if study.own and missing:
        raise EngramError("; ".join(missing.values()))
    for row, cell in study.cells():
        for name in (n for n in (cell.recipe, *cell.short) if n and n not in missing):
            if why := cannot_follow(load_recipe(name).method, cell.paper_ask):
                raise EngramError(f"{study.where}, row '{row.label}': {why}; change paper_ask or the recipe {name}")


def cannot_follow(method: str, asked: Mapping[str, Any]) -> str:
    """Why a method cannot be asked as a published figure was; "" where it can, or is a class of the user's own."""
    if (card := method_cards().get(method)) is None:
        return ""
    together = card.query_statistics or bool(card.task_norm_key)
    norms = (card.batch_norm, "task") if together else (card.batch_norm,)
    if (norm := asked.get("batch_norm", norms[0])) not in norms:
        return f"paper_ask has batch_norm = '{norm}' but {method} normalises by {' or '.join(map(repr, norms))} alone"
    if asked.get("test_samples") and not card.samples_key:
        return f"paper_ask has test_samples = {asked['test_samples']} but {method} has no posterior to sample"
    if asked.get("stream_length", 1) > 1 and not card.continual:
        return f"paper_ask has stream_length = {asked['stream_length']} but {method} carries nothing along a stream"
    return ""
