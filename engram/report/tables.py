"""Result tables in Markdown, rebuilt from the ledger. No number in README or docs is typed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engram.card import revisions_of
from engram.errors import EngramError, nearest
from engram.ledger import RunRecord, record_path
from engram.protocol import CLASS_ORDER_MARK, describe_protocol
from engram.recipes import load_recipe, recipe_names
from engram.recipes.schema import digest_of
from engram.report.cards import method_cards, system_name
from engram.report.columns import Column, Curve, markdown, position_columns, shown_positions
from engram.report.rows import (
    SELECTION_MARK,
    ResultRow,
    dataset_name,
    our_figure,
    paper_figure,
    published_figure,
    result_rows,
    trained_part,
    training_cost,
)

NOTE = "Ours: accuracy, ± its 95 % interval over independent sequences. ECE: expected calibration error, 0 is best."
NO_RUNS = "No runs are recorded yet."
FOLDED = "<details>\n<summary>Accuracy by position in streams of up to 16 tasks</summary>\n\n{}\n\n</details>"
OTHERS = "Runs of these recipes with other settings: [other runs](../runs.md)."
UNKNOWN_START = "Rows over frozen features or an earlier encoder: records from before 2026-11-16 do not say its digest."
LONGEST = 16
"""stream whose positions a method's page lists; longer ones are curves in docs/memory.md"""
PAGELESS = ("chance", "pixel_centroid")
"""methods without a page of their own"""


def _recipe_cell(row: ResultRow) -> str:
    seed = (row.record.recipe.get("train") or {}).get("seed", row.record.seed)
    variant = f", seed {seed}, settings {row.record.recipe_digest[:6]}" if row.shared_name else ""
    chosen = f", **{SELECTION_MARK}**" if (row.record.recipe.get("train") or {}).get("select_on_test") else ""
    part = f", trained on {words}" if (words := trained_part(row.trained)) else ""
    since = revisions_of(row.record.method, row.record.recipe.get("method_settings") or {})[row.record.revision :]
    earlier = f", revision {row.record.revision}, before: {'; '.join(r.what for r in since)}" if since else ""
    return f"{dataset_name(row.protocol)}, `{row.record.recipe_name}`{variant}{chosen}{part}{earlier}"


def results_table(records: Sequence[RunRecord], method: str, runs: str = "results/runs") -> str:
    """One row for each recipe and protocol of a method. ``runs`` is the way from the page to the records."""
    found = [r for r in result_rows(records) if r.record.method == method]
    rows = _of_today(found)
    if not rows:
        return NO_RUNS
    table = markdown(result_columns(runs), rows, "page")
    notes = [NOTE]
    if any(r.protocol.get("slot_order") == "class-order" for r in rows):
        notes.append(f'Rows marked "{CLASS_ORDER_MARK}" are not evidence that history helps.')
    if any(r.record.version == 1 and r.record.builds_on for r in rows):
        notes.append(UNKNOWN_START)
    if len(rows) < len(found):
        notes.append(OTHERS)
    return f"{table}\n\n{' '.join(notes)}"


def runs_list(records: Sequence[RunRecord], runs: str = "results/runs", others: bool = False) -> str:
    """Every row in brief, or the ``others`` alone: those that stand on no method's page."""
    rows = result_rows(records)
    if others:
        shown = {id(r) for method in {r.record.method for r in rows} - set(PAGELESS) for r in _rows_of(rows, method)}
        rows = [r for r in rows if id(r) not in shown]
    if not rows:
        return NO_RUNS
    return markdown(result_columns(runs), rows, "list")


def _rows_of(rows: Sequence[ResultRow], method: str) -> list[ResultRow]:
    """What a method's page shows."""
    return _of_today([r for r in rows if r.record.method == method])


def _of_today(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Without what was run with other settings than its recipe has today, where a run with today's answers the same."""
    names = {r.record.recipe_today for r in rows} & set(recipe_names())
    today = {name: digest_of(load_recipe(name).to_dict(), without_seed=True) for name in names}

    def kept(row: ResultRow) -> bool:
        revision = len(revisions_of(row.record.method, row.record.recipe.get("method_settings") or {}))
        digest = digest_of(row.record.recipe, without_seed=True)
        return digest == today.get(row.record.recipe_today) and row.record.revision == revision

    answered = {(r.record.recipe_today, describe_protocol(r.protocol)) for r in rows if kept(r)}
    return [r for r in rows if kept(r) or (r.record.recipe_today, describe_protocol(r.protocol)) not in answered]


def result_columns(runs: str) -> tuple[Column[ResultRow], ...]:
    """Of a method's ``page``, which names the system itself, and of a brief ``list`` of all runs."""

    def record(row: ResultRow) -> str:
        return f"[{row.record.run_id.rpartition('-')[2]}]({record_path(Path(runs), row.record).as_posix()})"

    page = ("page",)
    return (
        Column("System", _system, tables=("list",)),
        Column("Backbone", lambda row: str(row.record.recipe.get("backbone", "")), tables=page),
        Column("Data, recipe", _recipe_cell),
        Column("Protocol", _protocol),
        Column("Paper, %", paper_figure, right=True, tables=page),
        Column("Published, %", published_figure, right=True, tables=page, optional=True),
        Column("Ours, %", our_figure, right=True),
        Column("ECE", _calibration_error, right=True),
        Column("Minutes trained", training_cost, right=True, tables=page),
        Column("Device", lambda row: row.record.device, tables=page),
        Column("Record", record),
    )


def _system(row: ResultRow) -> str:
    return system_name(row.record.method)


def _protocol(row: ResultRow) -> str:
    return describe_protocol(row.protocol, markdown=True)


def _calibration_error(row: ResultRow) -> str:
    error = row.evaluation.metrics.get("ece") if row.evaluation else None
    return "" if error is None else f"{error:.3f}"


def positions_tables(records: Sequence[RunRecord], method: str | None = None, longest: int | None = None) -> str:
    """Accuracy by position in the stream, one table for each stream length above 1, up to the ``longest``."""
    rows = [r for r in result_rows(records) if method in (None, r.record.method) and r.evaluation is not None]
    rows = rows if method is None else _of_today(rows)
    by_length: dict[int, list[ResultRow]] = {}
    for row in rows:
        length = row.protocol.get("stream_length", 1)
        if 1 < length <= (longest or length):
            by_length.setdefault(length, []).append(row)
    table = "list" if method is None else "page"
    parts = [_positions_table(length, by_length[length], table) for length in sorted(by_length)]
    return "\n\n".join(parts) if parts else "No streams are recorded yet."


def _positions_table(length: int, rows: Sequence[ResultRow], table: str) -> str:
    columns = (
        Column("System", _system, tables=("list",)),
        Column("Data, recipe", _recipe_cell),
        Column("Protocol", _protocol),
        *position_columns(shown_positions(length), _curve, "Task ", "± at most"),
    )
    return f"Accuracy in % by position in a stream of {length} tasks:\n\n{markdown(columns, rows, table)}"


def _curve(row: ResultRow) -> Curve:
    metrics = row.evaluation.metrics if row.evaluation else {}
    return metrics.get("accuracy_by_position") or [], metrics.get("interval_by_position") or []


def section_text(name: str, records: Sequence[RunRecord], runs: str) -> str:
    """What stands between the markers: ``all``, ``others``, a method, or ``all`` or a method with ``:positions``."""
    stem, _, part = name.partition(":")
    if stem == "others":
        return runs_list(records, runs, others=True)
    method = None if stem == "all" else stem
    if part == "positions":
        return positions_tables(records, method)
    if method is None:
        return runs_list(records, runs)
    table = results_table(records, method, runs)
    of_method = [r for r in result_rows(records) if r.record.method == method]
    streams = [r for r in of_method if 1 < r.protocol.get("stream_length", 1) <= LONGEST]
    return f"{table}\n\n{FOLDED.format(positions_tables(records, method, LONGEST))}" if streams else table


def check_section(name: str, where: str, records: Sequence[RunRecord]) -> None:
    """A misspelt section would stay empty for ever, and nobody would notice."""
    known = {"all", "others", *method_cards(), *(r.method for r in records), *(n.split("/")[0] for n in recipe_names())}
    stem, _, part = name.partition(":")
    if stem not in known or part not in ("", "positions"):
        raise EngramError(f"{where}: 'results:begin {name}' names no known section{nearest(stem, known)}")
