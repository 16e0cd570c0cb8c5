"""What there is: datasets, methods with what they declare, recipes, and what each has scored."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from engram.data.datasets import check_dataset, describe
from engram.errors import EngramError, nearest
from engram.ledger import Ledger, read_ledger
from engram.methods import METHODS
from engram.recipes import load_recipe, recipe_names
from engram.report.table import percent
from engram.studies.published import published_figures
from engram.types import MethodCard

WIDE = 110
"""columns from which the papers fit beside the methods"""


def show_data(dataset: str | None, data: Path | None, build: bool) -> None:
    """A list of all benchmarks, or a check of one; problems are told and give a non-zero exit."""
    console = Console()
    if dataset is None:
        for row in describe(data):
            console.print(f"[bold]{row.dataset}[/], {_shape(row.image_shape)}", highlight=False)
            lines = Table.grid(padding=(0, 2))
            for name, text in (("found", row.found), ("read as", "\n".join(row.forms)), ("source", row.source)):
                lines.add_row(f"  {name}", text)
            console.print(lines, "")
        return
    report = check_dataset(dataset, data, read=build)
    if report.form:
        console.print(f"{dataset}: {report.form}, {report.root}", highlight=False)
        table = Table("split", "classes", "images", "image", "digest", "notes", box=box.SIMPLE_HEAD)
        for split in report.splits:
            digest = split.digest[:16] or "not built yet"
            counts = (str(split.classes), str(split.images), _shape(split.image_shape))
            table.add_row(split.split, *counts, digest, "\n".join(split.notes))
        console.print(table)
    if report.problems:
        raise EngramError("; ".join(report.problems))


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def show_list(what: str, results: Path, match: str = "", console: Console | None = None) -> None:
    """Methods and recipes whose names have ``match`` in them; records that cannot be read are told, not hidden."""
    console = console or Console()
    records, problems = read_ledger(results)
    ledger = Ledger(records)
    methods = [stem for stem in METHODS if match in stem] if what in ("all", "methods") else []
    recipes = [name for name in recipe_names() if match in name] if what in ("all", "recipes") else []
    if not methods and not recipes:
        raise EngramError(f"nothing in the list has '{match}' in its name{nearest(match, METHODS)}")
    if methods:
        console.print(_methods_table(methods, console.width >= WIDE))
    if recipes:
        for method in dict.fromkeys(name.split("/")[0] for name in recipes):
            group = [name for name in recipes if name.startswith(f"{method}/")]
            console.print(_recipes_table(method, group, ledger, described=bool(match)))
        console.print("scored: the newest finished run, its first protocol, ± 95 % interval", highlight=False)
        if not match:
            console.print("engram list recipes mini_5w1s (any part of a name) tells what each of them is")
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


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)


def _methods_table(stems: list[str], wide: bool) -> Table:
    table = _table("methods")
    table.add_column("method", no_wrap=True)
    table.add_column("system")
    table.add_column("declares", min_width=18)
    table.add_column("BatchNorm at test", min_width=9)
    if wide:
        table.add_column("paper")
    for stem in stems:
        card = METHODS[stem].card
        table.add_row(stem, card.title, abilities(card), card.batch_norm, *([card.paper] if wide else []))
    return table


def _recipes_table(method: str, names: list[str], ledger: Ledger, described: bool) -> Table:
    """The recipes of one method with the paper's figure and the newest finished run's on its first protocol."""
    table = _table(METHODS[method].card.title if method in METHODS else method)
    table.add_column("recipe", no_wrap=not described)
    for name in ("paper, %", "scored, %"):
        table.add_column(name, justify="right", no_wrap=True)
    figures = published_figures()
    for name in names:
        recipe = load_recipe(name)
        paper = f"{figures[name].cell.paper:.2f}" if name in figures else ""
        answer = ledger.newest_answer(recipe)
        metrics = answer.evaluation.metrics if answer else {}
        scored = percent(metrics["accuracy"], metrics["interval"]) if metrics else ""
        table.add_row(f"{name}\n[dim]{recipe.description}[/]" if described else name, paper, scored)
    return table
