"""Results of each method and of all runs, in Markdown and as one CSV file for a spreadsheet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from engram.card import Revision, method_cards, revisions_of, system_name
from engram.ledger import RunRecord
from engram.protocol import CLASS_ORDER_MARK, describe_protocol
from engram.recipes import load_recipe, recipe_names
from engram.recipes.schema import digest_of
from engram.report.headline import headline
from engram.report.rows import (
    SELECTION_MARK,
    ResultRow,
    dataset_name,
    file_of,
    linked,
    our_figure,
    published_figure,
    trained_part,
    training_cost,
)
from engram.report.table import Column, Curve, Opened, Table, folded, headed, position_columns, shown_positions

SUMMARY = Path("results/summary.csv")
NOTE = "Ours: accuracy, ± its 95 % interval over independent sequences. Queries are shuffled if nothing else is said."
QUOTED = "Published: in the system's own paper; (Table n): as the paper of CML-BGNN prints it."
ECE_NOTE = "ECE: expected calibration error, 0 is best."
NO_RUNS = "No runs are recorded yet."
POSITIONS = "Accuracy by position in streams of up to 16 tasks"
OTHERS = "Runs of these recipes with other settings: [other runs](../runs.md)."
UNKNOWN_START = "Rows over frozen features or an earlier encoder: records from before 2026-11-16 do not say its digest."
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
BY_ORDER = f"{CLASS_ORDER_MARK[0].upper()}{CLASS_ORDER_MARK[1:]}; no evidence that history helps."
LONGEST = 16
"""stream whose positions a method's page lists; longer ones are curves in docs/memory.md"""
PAGELESS = ("chance", "pixel_centroid")
"""methods without a page of their own"""


def result_columns(runs: str, shown: Sequence[ResultRow] = ()) -> tuple[Column[ResultRow], ...]:
    """Of the table a method's page opens with (``head``), of the one it folds away (``page``), of those by position
    in a stream (``along``), of a brief ``list`` of runs, and of the ``summary``.

    ``runs`` is the way from the page to the records; ``shown``: all rows of the table, whose clauses become footnotes.
    """
    marks, settings = footnotes(shown), {(_name(row), row.seed, row.record.recipe_digest) for row in shown}
    several = Counter(name for name, *_ in settings)

    def recipe(row: ResultRow) -> str:
        words = [f"`{row.record.recipe_name}`"]
        if several[_name(row)] > 1:
            words.append(f"(seed {row.seed}, settings {row.record.recipe_digest[:6]})")
        if (row.record.recipe.get("train") or {}).get("select_on_test"):
            words.append(f"**{SELECTION_MARK}**")
        return " ".join([*words, *(marks[clause] for clause in _clauses(row) if clause in marks)])

    head, page, along, brief, summary = ("head",), ("page",), ("along",), ("list",), ("summary",)
    every = (*page, *head, *brief)
    return (
        Column("System", lambda row: system_name(row.record.method), places=brief),
        Column("Recipe", recipe, places=(*every, *along)),
        Column("Encoder", lambda row: str(row.record.recipe.get("backbone", "")), places=page, once=True),
        Column("Test tasks", lambda row: f"{dataset_name(row.protocol)} {_asked(row)}", places=(*head, *brief, *along)),
        Column("Test tasks", lambda row: _asked(row).partition(", ")[2], places=page),
        Column("Published, %", published_figure, right=True, places=(*head, *page), optional=True),
        Column("Ours, %", our_figure, right=True, places=every),
        Column("ECE", lambda row: _metric(row, "ece", 1, 3), right=True, places=(*page, *brief)),
        Column("Minutes trained", training_cost, right=True, places=(*page, *head), once=True),
        Column("Device", lambda row: row.record.device, places=page, once=True),
        Column("Record", lambda row: linked(row.record.run_id.rpartition("-")[2], row.record, runs), places=every),
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


def _name(row: ResultRow) -> tuple[str, str]:
    return row.record.recipe_name, describe_protocol(row.protocol)


def _asked(row: ResultRow) -> str:
    """``5-way 1-shot, 1 query per class, T = 8``: without "shuffled", and class order in two words."""
    words = describe_protocol(row.protocol, markdown=True).replace(CLASS_ORDER_MARK, "class order")
    return words.replace(", shuffled", "")


def _clauses(row: ResultRow) -> list[str]:
    """What to know of a row, a sentence each."""
    since = "; ".join(revision.what for revision in _revisions(row)[row.record.revision :])
    part, in_order = trained_part(row.trained), row.protocol.get("slot_order") == "class-order"
    told = (since and f"Run before this change of the method: {since}.", part and f"Trained on {part}.")
    return [clause for clause in (*told, BY_ORDER if in_order else "") if clause]


def footnotes(rows: Sequence[ResultRow]) -> dict[str, str]:
    """Clause -> ``¹``, ``²``, ... in the order in which rows need them."""
    clauses = dict.fromkeys(clause for row in rows for clause in _clauses(row))
    return {clause: str(n).translate(SUPERSCRIPT) for n, clause in enumerate(clauses, 1)}


def _below(rows: Sequence[ResultRow]) -> str:
    return " ".join(f"{mark} {clause}" for clause, mark in footnotes(rows).items())


def _revisions(row: ResultRow) -> tuple[Revision, ...]:
    return revisions_of(row.record.method, row.record.recipe.get("method_settings") or {})


def _table(rows: Sequence[ResultRow], place: str, runs: str, *notes: str) -> Table[ResultRow]:
    """With its footnotes below; rows of a ``page`` stand below their data, ways and shots."""
    lines = headed(rows, lambda r: f"{dataset_name(r.protocol)}, {_asked(r).partition(', ')[0]}")
    note = "\n\n".join(filter(None, (" ".join(filter(None, notes)), _below(rows))))
    return Table(result_columns(runs, rows), lines if place == "page" else rows, place, note=note, empty=NO_RUNS)


def results_table(rows: Sequence[ResultRow], method: str, runs: str = "results/runs") -> str:
    """The rows of a method that a newcomer asks for; where there are more, all of them folded away below."""
    found = [r for r in rows if r.record.method == method]
    shown = of_today(found)
    quotes = QUOTED if any("(Table" in published_figure(r) for r in shown) else ""
    notes = [NOTE, ECE_NOTE, quotes]
    if any(r.record.version == 1 and r.record.builds_on for r in shown):
        notes.append(UNKNOWN_START)
    if len(shown) < len(found):
        notes.append(OTHERS)
    everything = _table(shown, "page", runs, *notes)
    if len(first := headline(shown)) == len(shown):
        return everything.markdown()
    return Opened(_table(first, "head", runs, NOTE, quotes), everything, f"All {len(shown)} recorded rows").markdown()


def _along_streams(rows: Sequence[ResultRow]) -> str:
    """Accuracy by position in the stream, one table for each stream length above 1, up to the `LONGEST`."""
    tables = []
    for length in range(2, LONGEST + 1):
        shown = [r for r in rows if r.length == length and r.evaluation is not None]
        columns = position_columns(shown_positions(length), _curve, "Task ", "± at most")
        title = f"Accuracy in % by position in a stream of {length} tasks:"
        tables.append(Table((*result_columns("", shown), *columns), shown, "along", title, _below(shown)).markdown())
    return "\n\n".join(filter(None, tables))


def _curve(row: ResultRow) -> Curve:
    metrics = row.evaluation.metrics if row.evaluation else {}
    return metrics.get("accuracy_by_position") or [], metrics.get("interval_by_position") or []


def on_no_page(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Those that stand on no method's page."""
    methods = {r.record.method for r in rows} - set(PAGELESS)
    shown = {id(r) for method in methods for r in of_today([r for r in rows if r.record.method == method])}
    return [r for r in rows if id(r) not in shown]


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


def results_section(name: str, rows: Sequence[ResultRow], runs: str) -> str:
    """What stands between the markers: ``all`` runs in brief, the ``others`` alone that no page shows, or a method."""
    if name in ("all", "others"):
        return _table(rows if name == "all" else on_no_page(rows), "list", runs).markdown()
    along = _along_streams(of_today([r for r in rows if r.record.method == name]))
    table = results_table(rows, name, runs)
    return f"{table}\n\n{folded(POSITIONS, along)}" if along else table


def results_sections(records: Sequence[RunRecord]) -> set[str]:
    """Names of all sections there are."""
    recipes = (name.split("/")[0] for name in recipe_names())
    return {"all", "others", *method_cards(), *(r.method for r in records), *recipes}
