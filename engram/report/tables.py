"""Result tables in Markdown, rebuilt from the ledger. No number in README or docs is typed by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engram.errors import EngramError, nearest
from engram.ledger import RunRecord, record_path
from engram.protocol import CLASS_ORDER_MARK, describe_protocol
from engram.recipes import load_recipe, recipe_names
from engram.recipes.schema import digest_of
from engram.report.console import shown_positions
from engram.report.rows import (
    SELECTION_MARK,
    SYSTEM_NAMES,
    ResultRow,
    dataset_name,
    our_figure,
    paper_figure,
    percent,
    published_figure,
    result_rows,
    system_name,
    trained_part,
    training_cost,
)
from engram.revisions import revisions_of

RESULT_HEADER = (
    "System",
    "Backbone",
    "Data, recipe",
    "Protocol",
    "Paper, %",
    "Ours, %",
    "ECE",
    "Minutes trained",
    "Device",
    "Record",
)
PUBLISHED_AT = 4
"""after the paper's figure, on a page that names the system"""
NOTE = "Ours: accuracy, ± its 95 % interval over independent sequences. ECE: expected calibration error, 0 is best."
NO_RUNS = "No runs are recorded yet."
FOLDED = "<details>\n<summary>Accuracy by position in streams of up to 16 tasks</summary>\n\n{}\n\n</details>"
OTHERS = "Runs of these recipes with other settings: [other runs](../runs.md)."
UNKNOWN_START = "Rows over frozen features or an earlier encoder: records from before 2026-11-16 do not say its digest."
LONGEST = 16
"""stream whose positions a method's page lists; longer ones are curves in docs/memory.md"""
PAGELESS = ("chance", "pixel_centroid")
"""methods without a page of their own"""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A GitHub table; columns in ``right`` are aligned to the right."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", " ".join(c.split())) for c in cells) + " |"

    rule = ["--:" if n in right else "---" for n in range(len(header))]
    return "\n".join([line(header), "|" + "|".join(rule) + "|", *(line(r) for r in rows)])


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
    header, lines = list(RESULT_HEADER[1:]), [_result_cells(r, runs)[1:] for r in rows]  # the page names the system
    published = [published_figure(r) for r in rows]
    if any(published):  # a column only where a system's own paper is quoted
        header.insert(PUBLISHED_AT, "Published, %")
        for line, figure in zip(lines, published, strict=True):
            line.insert(PUBLISHED_AT, figure)
    table = markdown_table(header, lines, right=range(3, len(header) - 2))
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
    brief = [
        RESULT_HEADER.index(column) for column in ("System", "Data, recipe", "Protocol", "Ours, %", "ECE", "Record")
    ]
    lines = [_result_cells(r, runs) for r in rows]
    return markdown_table([RESULT_HEADER[n] for n in brief], [[line[n] for n in brief] for line in lines], right=(3, 4))


def _rows_of(rows: Sequence[ResultRow], method: str) -> list[ResultRow]:
    """What a method's page shows."""
    return _of_today([r for r in rows if r.record.method == method])


def _of_today(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Without what was run with other settings than its recipe has today, where a run with today's answers the same."""
    names = {r.record.recipe_name for r in rows} & set(recipe_names())
    today = {name: digest_of(load_recipe(name).to_dict(), without_seed=True) for name in names}

    def kept(row: ResultRow) -> bool:
        revision = len(revisions_of(row.record.method, row.record.recipe.get("method_settings") or {}))
        digest = digest_of(row.record.recipe, without_seed=True)
        return digest == today.get(row.record.recipe_name) and row.record.revision == revision

    answered = {(r.record.recipe_name, describe_protocol(r.protocol)) for r in rows if kept(r)}
    return [r for r in rows if kept(r) or (r.record.recipe_name, describe_protocol(r.protocol)) not in answered]


def _result_cells(row: ResultRow, runs: str) -> list[str]:
    ece = row.evaluation.metrics.get("ece") if row.evaluation else None
    return [
        system_name(row.record.method),
        str(row.record.recipe.get("backbone", "")),
        _recipe_cell(row),
        describe_protocol(row.protocol, markdown=True),
        paper_figure(row),
        our_figure(row),
        "" if ece is None else f"{ece:.3f}",
        training_cost(row),
        row.record.device,
        f"[{row.record.run_id.rpartition('-')[2]}]({record_path(Path(runs), row.record).as_posix()})",
    ]


def positions_tables(records: Sequence[RunRecord], method: str | None = None, longest: int | None = None) -> str:
    """Accuracy by position in the stream, one table for each stream length above 1, up to the ``longest``."""
    rows = [r for r in result_rows(records) if method in (None, r.record.method) and r.evaluation is not None]
    rows = rows if method is None else _of_today(rows)
    by_length: dict[int, list[ResultRow]] = {}
    for row in rows:
        length = row.protocol.get("stream_length", 1)
        if 1 < length <= (longest or length):
            by_length.setdefault(length, []).append(row)
    parts = [_positions_table(length, by_length[length], method is None) for length in sorted(by_length)]
    return "\n\n".join(parts) if parts else "No streams are recorded yet."


def _positions_table(length: int, rows: Sequence[ResultRow], name_systems: bool) -> str:
    """Intervals of a row are much the same at all positions: the widest one is given."""
    positions = shown_positions(length)
    header = ["System", "Data, recipe", "Protocol", *(f"Task {p}" for p in positions), "± at most"]
    body = []
    for row in rows:
        assert row.evaluation is not None
        accuracy = row.evaluation.metrics.get("accuracy_by_position") or []
        interval = [i for i in row.evaluation.metrics.get("interval_by_position") or [] if i is not None]
        cells = [percent(accuracy[p - 1], None, 1) if p <= len(accuracy) else "" for p in positions]
        widest = f"{100 * max(interval):.1f}" if interval else ""
        protocol = describe_protocol(row.protocol, markdown=True)
        body.append([system_name(row.record.method), _recipe_cell(row), protocol, *cells, widest])
    first = 0 if name_systems else 1
    table = markdown_table(header[first:], [line[first:] for line in body], right=range(3 - first, len(header) - first))
    return f"Accuracy in % by position in a stream of {length} tasks:\n\n{table}"


def comparison_table(first: str, second: str, comparison: Mapping[str, Any]) -> str:
    """A paired comparison on equal tasks: ``difference`` and ``interval`` are fractions of 1, ``n`` is the pairs."""
    difference, interval, n = comparison["difference"], comparison["interval"], comparison["n"]
    if abs(difference) <= interval:
        verdict = "no difference shown"
    else:
        verdict = f"{first if difference > 0 else second} is higher"
    header = ("First", "Second", "First minus second, points", "Sequences, paired", "Reading")
    cells = (first, second, f"{100 * difference:+.2f} ± {100 * interval:.2f}", f"{n:,}", verdict)
    return markdown_table(header, [cells], right=(2, 3))


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
    known = {"all", "others", *SYSTEM_NAMES, *(r.method for r in records), *(n.split("/")[0] for n in recipe_names())}
    stem, _, part = name.partition(":")
    if stem not in known or part not in ("", "positions"):
        raise EngramError(f"{where}: 'results:begin {name}' names no known section{nearest(stem, known)}")
