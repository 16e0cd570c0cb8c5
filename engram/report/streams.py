"""Memory along the stream: late accuracy of each system, and paired differences.

Paired differences come from the per-task results beside the records, not from two rounded means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engram.errors import EngramError, nearest
from engram.evaluation.metrics import paired_difference
from engram.ledger import RunRecord, correctness, record_path
from engram.report.columns import markdown_table
from engram.report.rows import percent
from engram.report.stream_cells import LENGTHS, Cell, stream_cells

PARTS = ("table", "paired")
NO_STREAMS = "No streams are recorded yet."
TABLE_NOTE = (
    "Accuracy in % over the last quarter of a stream of T tasks, ± its 95 % interval over streams; the newest record "
    "of each cell, by its link. miniImageNet, 5-way 1-shot, 15 queries per class, shuffled, all test classes. "
    "Transductive: the queries of the task at hand inform one another. EGNN, ProtoNet and CML-BGNN by slot or without "
    "history read no names: they answer named streams as they do anonymous ones and stand there once."
)
PAIRED_NOTE = (
    "Mean over streams of the difference in the last quarter, in points, ± its 95 % interval; both systems answered "
    "the same streams on the same features."
)


@dataclass(frozen=True)
class Pair:
    """A comparison of two recipes, at each of `LENGTHS`."""

    first: str
    second: str
    """recipe"""
    names: str
    erased: Literal["none", "second", "both"]
    """which of them answer without their history"""


def _named(encoder: str) -> Pair:
    recipe, other = f"content_memory/mini_5w1s_named{encoder}", f"proto_memory/mini_5w1s_frozen{encoder}"
    return Pair(recipe, other, "named", "none")


def _erased(names: str, encoder: str) -> Pair:
    recipe = f"content_memory/mini_5w1s_{names}{encoder}"
    return Pair(recipe, recipe, names, "second")


def _against_the_mean(encoder: str) -> Pair:
    """Without names the prototype memory knows the stream's mean alone: what a task on its own gives."""
    recipe, other = f"content_memory/mini_5w1s_anonymous{encoder}", f"proto_memory/mini_5w1s_frozen{encoder}"
    return Pair(recipe, other, "anonymous", "none")


INDUCTIVE = "content_memory/mini_5w1s_named_inductive"
PAIRS = (
    _named(""),
    Pair("content_memory/mini_5w1s_named", INDUCTIVE, "named", "none"),
    Pair(INDUCTIVE, "proto_memory/mini_5w1s_frozen", "named", "none"),
    Pair(INDUCTIVE, "proto_memory/mini_5w1s_frozen", "named", "both"),
    _named("_resnet12_wide"),
    _erased("named", ""),
    _erased("named", "_resnet12_wide"),
    _erased("anonymous", ""),
    _erased("anonymous", "_resnet12_wide"),
    _against_the_mean(""),
    _against_the_mean("_resnet12_wide"),
)


def late_table(records: Sequence[RunRecord], runs: str) -> str:
    """A row for each system, encoder and kind of stream, a column for each T."""
    rows: dict[tuple[str, str, str, bool], dict[int, Cell]] = {}
    for cell in stream_cells(records):
        rows.setdefault(cell.row, {})[cell.length] = cell
    if not rows:
        return NO_STREAMS
    header = ("Stream", "Encoder", "System", "Recipe", *(f"T = {length}" for length in LENGTHS))
    body = []
    for (names, backbone, _, _), cells in rows.items():
        one = next(iter(cells.values()))
        late = [_late(cells[length], runs) if length in cells else "" for length in LENGTHS]
        body.append([names, backbone, one.label(), f"`{one.record.recipe_name}`", *late])
    return f"{markdown_table(header, body, right=(4, 5, 6))}\n\n{TABLE_NOTE}"


def _late(cell: Cell, runs: str) -> str:
    late = cell.evaluation.metrics["stream"]
    return f"[{percent(late['last_quarter'], late['last_quarter_interval'])}]({_link(cell, runs)})"


def _link(cell: Cell, runs: str) -> str:
    return record_path(Path(runs), cell.record).as_posix()


def paired_table(records: Sequence[RunRecord], runs: str, folder: Path) -> str:
    """Each comparison at each T whose two records answered the same streams."""
    cells = {(*cell.row, cell.length): cell for cell in stream_cells(records)}
    body = []
    for pair in PAIRS:
        for length in LENGTHS:
            first = _find(cells, pair.first, pair.names, pair.erased == "both", length)
            second = _find(cells, pair.second, pair.names, pair.erased != "none", length)
            if first and second and first.questions == second.questions:
                body.append(_paired_cells(first, second, runs, folder))
    if not body:
        return NO_STREAMS
    header = ("Stream", "Encoder", "First minus second", "T", "Difference", "Streams", "Records")
    return f"{markdown_table(header, body, right=(3, 4, 5))}\n\n{PAIRED_NOTE}"


def _find(cells: Mapping[tuple[Any, ...], Cell], recipe: str, names: str, erased: bool, length: int) -> Cell | None:
    found = [c for c in cells.values() if (c.record.recipe_today, c.names, c.erased) == (recipe, names, erased)]
    return next((c for c in found if c.length == length), None)


def _paired_cells(first: Cell, second: Cell, runs: str, folder: Path) -> list[str]:
    paired = paired_difference(*(correctness(c.evaluation, folder) for c in (first, second)), last_quarter=True)
    difference, interval = 100 * paired["difference"], 100 * paired["interval"]
    same = first.record.recipe_today == second.record.recipe_today
    other = "the same model, history erased" if same else second.label()
    return [
        first.names,
        first.backbone,
        f"{first.label()}, minus {other}",
        str(first.length),
        f"{difference:+.2f} ± {interval:.2f}",
        f"{paired['n']:,}",
        f"[first]({_link(first, runs)}), [second]({_link(second, runs)})",
    ]


def stream_section(name: str, records: Sequence[RunRecord], runs: str, folder: Path) -> str:
    """What stands between the markers; ``folder`` holds the records, ``runs`` is the way to it from the page."""
    return late_table(records, runs) if name == "table" else paired_table(records, runs, folder)


def check_stream_section(name: str, where: str, records: Sequence[RunRecord]) -> None:
    if name not in PARTS:
        raise EngramError(f"{where}: 'streams:begin {name}' names no known section{nearest(name, PARTS)}")
