"""What there is: datasets, methods with what they declare, recipes, and what each has scored."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

from engram.data.datasets import SplitReport, check_dataset, describe, write_shards
from engram.errors import EngramError, nearest
from engram.ledger import Ledger, read_ledger
from engram.methods import METHODS
from engram.recipes import Recipe, load_recipe, recipe_names
from engram.report.table import Column, Table, percent
from engram.studies import Cell
from engram.studies.claims import published_figures
from engram.types import MethodCard

WIDE = 110
"""columns from which the papers fit beside the methods"""


def show_data(dataset: str | None, data: Path | None, build: bool, shards: str | None = None) -> None:
    """A list of all benchmarks, or a check of one; problems are told and give a non-zero exit.

    ``shards`` is the URL that the stores of one are written to in pieces.
    """
    console = Console()
    if shards and not dataset:
        raise EngramError(f"--shards {shards} needs to know of what: engram data DATASET --shards URL")
    if dataset is None:
        for spec, found in describe(data):
            console.print(f"[bold]{spec.name}[/], {_shape(spec.image_shape)}", highlight=False)
            lines = Grid.grid(padding=(0, 2))
            for name, text in (("found", found), ("read as", "\n".join(spec.forms)), ("source", spec.source)):
                lines.add_row(f"  {name}", text)
            console.print(lines, "")
        return
    report = check_dataset(dataset, data, read=build or bool(shards))
    if report.form:
        console.print(f"{dataset}: {report.form}, {report.root}", highlight=False)
        console.print(Table(SPLIT_COLUMNS, report.splits).terminal())
    if report.problems:
        raise EngramError("; ".join(report.problems))
    if shards:
        for place, manifest in write_shards(dataset, shards, data).items():
            console.print(f"{place}: {sum(manifest.counts)} images, in shards: {len(manifest.shards)}", highlight=False)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


SPLIT_COLUMNS: tuple[Column[SplitReport], ...] = (
    Column("split", lambda s: s.split),
    Column("classes", lambda s: str(s.classes)),
    Column("images", lambda s: str(s.images)),
    Column("image", lambda s: _shape(s.image_shape)),
    Column("digest", lambda s: s.digest[:16] or "not built yet"),
    Column("notes", lambda s: "\n".join(s.notes)),
)


def show_list(
    what: str, results: Path, match: str = "", variants: bool = False, console: Console | None = None
) -> None:
    """Methods and recipes whose names have ``match`` in them; records that cannot be read are told, not hidden.

    Where nothing is to match, recipes are those `_to_begin_with`, unless ``variants`` are asked for too.
    """
    console = console or Console()
    records, problems = read_ledger(results)
    ledger = Ledger(records)
    methods = [stem for stem in METHODS if match in stem] if what in ("all", "methods") else []
    recipes = [name for name in recipe_names() if match in name] if what in ("all", "recipes") else []
    if not methods and not recipes:
        raise EngramError(f"nothing in the list has '{match}' in its name{nearest(match, METHODS)}")
    if methods:
        cards = [(stem, METHODS[stem].card) for stem in methods]
        console.print(Table(METHOD_COLUMNS, cards, "wide" if console.width >= WIDE else "narrow", "methods").terminal())
    if recipes:
        shown = recipes if match or variants else _to_begin_with(recipes, ledger)
        by_method = groupby(shown, lambda name: name.split("/")[0])
        groups = [list(names) for _, names in by_method] if shown == recipes else [shown]  # long names need the room
        for names in groups:
            console.print(_recipes_table(names, ledger, described=bool(match)).terminal())
        console.print("scored: the newest finished run, its first protocol, ± 95 % interval", highlight=False)
        if not match:
            console.print("engram list recipes mini_5w1s (any part of a name) tells what each of them is")
        if more := len(recipes) - len(shown):
            console.print(f"--variants names {more} more, which change a few settings of one of these", highlight=False)
    for problem in problems:
        console.print(f"left out: {problem}", markup=False)


ABILITIES = {
    "transductive": "transductive",
    "continual": "continual",
    "slot_memory": "memory by slot",
    "stochastic": "stochastic",
    "semi_supervised": "semi-supervised",
    "fixed_ways": "fixed ways",
    "fixed_shots": "fixed shots",
    "exportable": "exportable",
}


def abilities(card: MethodCard) -> str:
    named = [words for name, words in ABILITIES.items() if getattr(card, name)]
    limits = [] if card.class_equivariant else ["depends on class numbers"]
    limits += [] if card.support_order_invariant else ["depends on support order"]
    return ", ".join(named + limits) or "inductive"


METHOD_COLUMNS: tuple[Column[tuple[str, MethodCard]], ...] = (
    Column("method", lambda m: m[0], whole=True),
    Column("system", lambda m: m[1].title),
    Column("declares", lambda m: abilities(m[1])),
    Column("BatchNorm at test", lambda m: m[1].batch_norm),
    Column("paper", lambda m: m[1].paper, places=("wide",)),
)


def _to_begin_with(names: Sequence[str], ledger: Ledger) -> list[str]:
    """The recipes that are no variant of another, each followed by the one that the tables show for it: the first of
    its cell that has been run."""
    shown, known = [], set(names)
    for name in names:
        if any(name[:end] in known for end, letter in enumerate(name) if letter == "_"):
            continue
        cell = published_figures()[name].cell if name in published_figures() else Cell("")
        in_turn = (other for other in (cell.recipe, *cell.short, *cell.beside) if other in known)
        run = next((other for other in in_turn if ledger.newest_answer(load_recipe(other))), name)
        shown += [name, run]
    return list(dict.fromkeys(shown))


def _recipes_table(names: list[str], ledger: Ledger, described: bool) -> Table[Recipe]:
    """Recipes with the paper's figure and the newest finished run's on its first protocol."""
    figures = published_figures()

    def scored(recipe: Recipe) -> str:
        metrics = answer.evaluation.metrics if (answer := ledger.newest_answer(recipe)) else {}
        return percent(metrics["accuracy"], metrics["interval"]) if metrics else ""

    def published(recipe: Recipe) -> str:
        return percent(figures[recipe.name].cell.paper / 100) if recipe.name in figures else ""

    columns: tuple[Column[Recipe], ...] = (
        Column("recipe", lambda r: f"{r.name}\n{r.description}" if described else r.name, whole=not described),
        Column("paper, %", published, right=True, optional=True),
        Column("scored, %", scored, right=True),
    )
    method = names[0].split("/")[0]
    alone = method in METHODS and all(name.startswith(f"{method}/") for name in names)
    return Table(columns, list(map(load_recipe, names)), title=METHODS[method].card.title if alone else "recipes")
