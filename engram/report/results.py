"""Results of each method, of all runs and of pairs of them, in Markdown and as one CSV file for a spreadsheet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engram.card import Revision, method_cards, revisions_of, system_name
from engram.ledger import Evaluation, RunRecord
from engram.protocol import CLASS_ORDER_MARK, describe_protocol
from engram.recipes import load_recipe, recipe_names
from engram.recipes.schema import digest_of
from engram.report.rows import (
    SELECTION_MARK,
    ResultRow,
    dataset_name,
    file_of,
    gap_text,
    linked,
    our_figure,
    paired,
    paper_figure,
    published_figure,
    trained_part,
    training_cost,
)
from engram.report.table import Column, Curve, Table, percent, position_columns, shown_positions

SUMMARY = Path("results/summary.csv")
NOTE = "Ours: accuracy, ± its 95 % interval over independent sequences. ECE: expected calibration error, 0 is best."
NO_RUNS, NO_STREAMS, NOT_MEASURED = "No runs are recorded yet.", "No streams are recorded yet.", "Not measured yet."
FOLDED = "<details>\n<summary>Accuracy by position in streams of up to 16 tasks</summary>\n\n{}\n\n</details>"
OTHERS = "Runs of these recipes with other settings: [other runs](../runs.md)."
UNKNOWN_START = "Rows over frozen features or an earlier encoder: records from before 2026-11-16 do not say its digest."
LONGEST = 16
"""stream whose positions a method's page lists; longer ones are curves in docs/memory.md"""
PAGELESS = ("chance", "pixel_centroid")
"""methods without a page of their own"""


def result_columns(runs: str) -> tuple[Column[ResultRow], ...]:
    """Of a method's ``page``, which names the system itself, of a brief ``list`` of all runs, and of the ``summary``.

    ``runs`` is the way from the page to the records.
    """
    page, brief, both, summary = ("page",), ("list",), ("page", "list"), ("summary",)
    return (
        Column("System", lambda row: system_name(row.record.method), places=brief),
        Column("Backbone", lambda row: str(row.record.recipe.get("backbone", "")), places=page),
        Column("Data, recipe", _recipe_cell, places=both),
        Column("Protocol", lambda row: describe_protocol(row.protocol, markdown=True), places=both),
        Column("Paper, %", paper_figure, right=True, places=page),
        Column("Published, %", published_figure, right=True, places=page, optional=True),
        Column("Ours, %", our_figure, right=True, places=both),
        Column("ECE", lambda row: _metric(row, "ece", 1, 3), right=True, places=both),
        Column("Minutes trained", training_cost, right=True, places=page),
        Column("Device", lambda row: row.record.device, places=page),
        Column("Record", lambda row: linked(row.record.run_id.rpartition("-")[2], row.record, runs), places=both),
        Column("recipe", lambda row: row.record.recipe_name, places=summary),
        Column("method", lambda row: row.record.method, places=summary),
        Column("dataset", lambda row: dataset_name(row.protocol), places=summary),
        Column("protocol", lambda row: describe_protocol(row.protocol), places=summary),
        Column("accuracy_percent", lambda row: _metric(row, "accuracy", 100, 2), places=summary),
        Column("interval_percent", lambda row: _metric(row, "interval", 100, 2), places=summary),
        Column("iterations", lambda row: str(int(row.trained.get("iterations") or 0)), places=summary),
        Column("seed", lambda row: str(int(row.seed)), places=summary),
        Column("settings", lambda row: row.record.recipe_digest[:6], places=summary),
        Column("revision", lambda row: str(row.record.revision), places=summary),
        Column("started", lambda row: row.record.started, places=summary),
        Column("record", lambda row: file_of(row.record, runs), places=summary),
    )


def _metric(row: ResultRow, name: str, scale: int, digits: int) -> str:
    value = row.evaluation.metrics.get(name) if row.evaluation else None
    return "" if value is None else f"{scale * value:.{digits}f}"


def _recipe_cell(row: ResultRow) -> str:
    words = [dataset_name(row.protocol), f"`{row.record.recipe_name}`"]
    if row.shared_name:
        words.append(f"seed {row.seed}, settings {row.record.recipe_digest[:6]}")
    if (row.record.recipe.get("train") or {}).get("select_on_test"):
        words.append(f"**{SELECTION_MARK}**")
    if part := trained_part(row.trained):
        words.append(f"trained on {part}")
    if since := _revisions(row)[row.record.revision :]:
        words.append(f"revision {row.record.revision}, before: {'; '.join(r.what for r in since)}")
    return ", ".join(words)


def _revisions(row: ResultRow) -> tuple[Revision, ...]:
    return revisions_of(row.record.method, row.record.recipe.get("method_settings") or {})


def results_table(rows: Sequence[ResultRow], method: str, runs: str = "results/runs") -> str:
    """One row for each recipe and protocol of a method."""
    found = [r for r in rows if r.record.method == method]
    shown = of_today(found)
    notes = [NOTE]
    if any(r.protocol.get("slot_order") == "class-order" for r in shown):
        notes.append(f'Rows marked "{CLASS_ORDER_MARK}" are not evidence that history helps.')
    if any(r.record.version == 1 and r.record.builds_on for r in shown):
        notes.append(UNKNOWN_START)
    if len(shown) < len(found):
        notes.append(OTHERS)
    return Table(result_columns(runs), shown, "page", note=" ".join(notes), empty=NO_RUNS).markdown()


def runs_list(rows: Sequence[ResultRow], runs: str = "results/runs", others: bool = False) -> str:
    """Every row in brief, or the ``others`` alone: those that stand on no method's page."""
    if others:
        methods = {r.record.method for r in rows} - set(PAGELESS)
        shown = {id(r) for method in methods for r in of_today([r for r in rows if r.record.method == method])}
        rows = [r for r in rows if id(r) not in shown]
    return Table(result_columns(runs), rows, "list", empty=NO_RUNS).markdown()


def summary_csv(rows: Sequence[ResultRow]) -> str:
    """A header and a line for each newest answer: accuracy in %, half-width of its 95 % interval, its record's file.

    Equal ``settings`` are equal recipes and seeds: a recipe may have been run before one of its keys was changed.
    """
    return Table(result_columns("runs"), [row for row in rows if row.evaluation is not None], "summary").csv()


def of_today(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Without what was run with other settings than its recipe has today, where a run with today's answers the same."""
    names = {r.record.recipe_today for r in rows} & set(recipe_names())
    today = {name: digest_of(load_recipe(name).to_dict(), without_seed=True) for name in names}

    def kept(row: ResultRow) -> bool:
        digest = digest_of(row.record.recipe, without_seed=True)
        return digest == today.get(row.record.recipe_today) and row.record.revision == len(_revisions(row))

    answered = {(r.record.recipe_today, describe_protocol(r.protocol)) for r in rows if kept(r)}
    return [r for r in rows if kept(r) or (r.record.recipe_today, describe_protocol(r.protocol)) not in answered]


def positions_tables(rows: Sequence[ResultRow], method: str | None = None, longest: int | None = None) -> str:
    """Accuracy by position in the stream, one table for each stream length above 1, up to the ``longest``."""
    rows = [r for r in rows if method in (None, r.record.method) and r.evaluation is not None]
    rows = rows if method is None else of_today(rows)
    lengths = sorted({length for r in rows if 1 < (length := r.length) <= (longest or length)})
    system, _, recipe, protocol, *_ = result_columns("")
    tables = (
        Table(
            (system, recipe, protocol, *position_columns(shown_positions(length), _curve, "Task ", "± at most")),
            [r for r in rows if r.length == length],
            "list" if method is None else "page",
            title=f"Accuracy in % by position in a stream of {length} tasks:",
        )
        for length in lengths
    )
    return "\n\n".join(table.markdown() for table in tables) or NO_STREAMS


def _curve(row: ResultRow) -> Curve:
    metrics = row.evaluation.metrics if row.evaluation else {}
    return metrics.get("accuracy_by_position") or [], metrics.get("interval_by_position") or []


def results_section(name: str, rows: Sequence[ResultRow], runs: str) -> str:
    """What stands between the markers: ``all``, ``others``, a method, or ``all`` or a method with ``:positions``."""
    stem, _, part = name.partition(":")
    if part:
        return positions_tables(rows, None if stem == "all" else stem)
    if stem in ("all", "others"):
        return runs_list(rows, runs, others=stem == "others")
    table = results_table(rows, stem, runs)
    streams = [r for r in rows if r.record.method == stem and 1 < r.length <= LONGEST]
    return f"{table}\n\n{FOLDED.format(positions_tables(rows, stem, LONGEST))}" if streams else table


def results_sections(records: Sequence[RunRecord]) -> set[str]:
    """Names of all sections there are."""
    methods = {*method_cards(), *(r.method for r in records), *(n.split("/")[0] for n in recipe_names())}
    return {"others", *(f"{stem}{part}" for stem in ("all", *methods) for part in ("", ":positions"))}


class Paths(NamedTuple):
    """Two runs of one recipe, seed and commit: one replayed captured steps, the other, with ``--plain``, did not."""

    fast: RunRecord
    plain: RunRecord
    ours: Evaluation
    theirs: Evaluation
    """the same tasks"""


def paths_table(records: Sequence[RunRecord], runs: str, folder: Path) -> Table[Paths]:
    """A row for each protocol that both runs of a pair answered on the same tasks, the newest of each kind."""
    kinds: dict[tuple[str, int, str], dict[bool, RunRecord]] = {}
    for record in sorted(records, key=lambda r: (r.started, r.run_id)):
        captured = record.training.get("captured")
        if (record.kind, record.status) == ("train", "finished") and captured is not None:
            kinds.setdefault((record.recipe_digest, record.seed, record.commit), {})[bool(captured)] = record
    rows = [
        Paths(found[True], found[False], ours, theirs)
        for found in kinds.values()
        if len(found) == 2
        for ours in found[True].evaluations
        for theirs in found[False].evaluations
        if theirs.tasks_digest == ours.tasks_digest
    ]

    def figure(record: RunRecord, evaluation: Evaluation) -> str:
        return linked(percent(evaluation.metrics["accuracy"], evaluation.metrics["interval"]), record, runs)

    columns: tuple[Column[Paths], ...] = (
        Column("Recipe", lambda p: f"`{p.fast.recipe_name}`"),
        Column("Steps", lambda p: f"{p.fast.training['iterations']:,}", right=True),
        Column("Protocol", lambda p: describe_protocol(p.ours.protocol)),
        Column("Fast, %", lambda p: figure(p.fast, p.ours), right=True),
        Column("Plain, %", lambda p: figure(p.plain, p.theirs), right=True),
        Column("Fast minus plain, points", lambda p: gap_text(paired(p.ours, p.theirs, folder)), right=True),
    )
    return Table(columns, rows, empty=NOT_MEASURED)
