"""What there is: datasets, methods with what they declare, recipes, and what each has scored."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from engram.data.datasets import check_dataset, describe
from engram.errors import EngramError
from engram.ledger import RunRecord, read_ledger
from engram.methods import METHODS
from engram.recipes import load_recipe, recipe_names
from engram.types import MethodCard


def show_data(dataset: str | None, data: Path | None, build: bool) -> None:
    """A table of all benchmarks, or a check of one; problems are told and give a non-zero exit."""
    console = Console()
    if dataset is None:
        table = Table("dataset", "image", "where it can be had", "read as", "found", show_lines=True)
        for row in describe(data):
            shape = "x".join(map(str, row.image_shape))
            table.add_row(row.dataset, shape, row.source, "\n".join(row.forms), row.found)
        console.print(table)
        return
    report = check_dataset(dataset, data, read=build)
    if report.form:
        table = Table(
            "split", "classes", "images", "image", "digest", "notes", title=f"{dataset}: {report.form}, {report.root}"
        )
        for split in report.splits:
            shape = "x".join(map(str, split.image_shape))
            notes = "\n".join(split.notes)
            table.add_row(
                split.split, str(split.classes), str(split.images), shape, split.digest[:16] or "not built yet", notes
            )
        console.print(table)
    if report.problems:
        raise EngramError("; ".join(report.problems))


def show_list(what: str, results: Path) -> None:
    console = Console()
    records, problems = read_ledger(results)
    if what in ("all", "methods"):
        console.print(_methods_table())
    if what in ("all", "recipes"):
        console.print(_recipes_table(records))
    for problem in problems:
        console.print(f"left out: {problem}")


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
    limits = [] if card.class_equivariant else ["not class-equivariant"]
    limits += [] if card.support_order_invariant else ["depends on support order"]
    return ", ".join(named + limits) or "inductive"


def _methods_table() -> Table:
    table = Table("method", "system", "declares", "BatchNorm at test", "paper", title="methods", title_justify="left")
    for stem, kind in METHODS.items():
        table.add_row(stem, kind.card.title, abilities(kind.card), kind.card.batch_norm, kind.card.paper)
    return table


def _recipes_table(records: list[RunRecord]) -> Table:
    """Recipes with the paper's figure and the newest finished run's accuracy on its first protocol."""
    table = Table("recipe", "description", "paper, %", "scored, %", title="recipes", title_justify="left")
    newest = {r.recipe_name: r for r in records if r.status == "finished" and r.evaluations}
    for name in recipe_names():
        recipe = load_recipe(name)
        paper = f"{recipe.paper.accuracy:.2f}" if recipe.paper else ""
        scored = ""
        if name in newest:
            metrics = newest[name].evaluations[0].metrics
            scored = f"{100 * metrics['accuracy']:.2f} ± {100 * metrics['interval']:.2f}"
        table.add_row(name, recipe.description, paper, scored)
    return table
