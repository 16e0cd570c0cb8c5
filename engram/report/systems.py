"""The systems of a study side by side, a table for each column: the published figure with its protocol, ours under that
protocol and asked cleanly, and a verdict. Cost of training and audit stand apart.

The README has a short table of them: each system once, published beside ours under the same protocol.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from engram.protocol import describe_protocol
from engram.report.cells import CellMap, Filled, other_training
from engram.report.rows import linked
from engram.report.statistics import estimate
from engram.report.table import Column, Notes, Table, headed, percent
from engram.report.verdicts import VERDICT_NOTE, against_centroid, against_paper, like_paper, sheet_backbone, verdict
from engram.studies.jobs import recipe_called
from engram.studies.schema import Cell, Row, Study

SYSTEMS_NOTE = (
    "Published: the figure in the table of the CML-BGNN paper, with how it was measured as far as that is known and "
    "matters. Clean: 15 queries per class, shuffled, no query normalised with another. Trained: steps of ours of "
    "those of the published schedule, bold over all of it; ± is a 95 % interval over tasks, and over seeds where there "
    f"are several. {VERDICT_NOTE}"
)
OURS = "Ours"
"""group of the paper's own rows, which are none of the systems it compares with"""
VARIANTS = ("CML-BGNN w/o C", "CML-BGNN w/o B", "CML-BGNN, public code's choices")
"""rows of the paper's table that are no system of their own; the wide table has them"""
CLASS_ORDER = "query order reveals the label; only to reproduce the paper"
DASH = "\N{EN DASH}"


def systems_tables(study: Study, cells: CellMap, runs: str) -> str:
    """A table for each column of the study, how many reach the published figure, and notes of all of them."""
    notes, parts = Notes(), list[str]()
    for column in study.columns:
        found = [(row, cells[row.label, column]) for row in study.rows if (row.label, column) in cells]
        lines = [(row.group, *SystemLine(row, like_paper(cell)).texts(runs, notes)) for row, cell in found]
        parts.append(Table(_columns(COLUMNS), headed(lines, itemgetter(0)), title=f"**{column}**").markdown())
    missing = list(dict.fromkeys(f"`{cell.command}`" for cell in cells.values() if cell.command))
    todo = f"What is not run: {', '.join(missing)}." if missing else ""
    return "\n\n".join(filter(None, (*parts, reached_text(study, cells), todo, SYSTEMS_NOTE, notes.markdown())))


COLUMNS = (
    "System", "Backbone, published -> ours", "Published, %", "Its protocol", "Ours, same protocol", "Ours, clean",
    "Verdict", "Trained",
)  # fmt: skip
LEAN_COLUMNS = ("System", "Published", "Ours", "Verdict")
NUMBERS = ("Published, %", "Ours, same protocol", "Ours, clean", "Published", "Ours")


def _columns(names: Sequence[str]) -> list[Column[tuple[str, ...]]]:
    """Of lines that hold their group and then a text for each name."""
    return [Column(name, itemgetter(number), right=name in NUMBERS) for number, name in enumerate(names, 1)]


@dataclass(frozen=True)
class SystemLine:
    """One system and setting."""

    row: Row
    cell: Filled

    def texts(self, runs: str, notes: Notes) -> tuple[str, ...]:
        """What stands in each of `COLUMNS`, marked where there is more to know."""
        cell = self.cell
        return (
            self.system("methods") + notes.mark(self.row.note),
            self.backbone(notes),
            (cell.cell.paper_text or DASH) + notes.mark(*_of_published(cell.cell)),
            published_protocol(cell.cell),
            ours_like_paper(cell, runs, notes),
            self.clean(runs),
            verdict(cell).words + notes.mark(_beside_centroid(cell)),
            trained(cell) + notes.mark(*((*other_training(cell), cell.without) if cell.answers else ())),
        )

    def system(self, pages: str) -> str:
        """Its label with a link to its page."""
        stem = self.cell.recipe.method if self.cell.recipe else ""
        return f"[{self.row.label}]({pages}/{stem}.md)" if stem else self.row.label

    def backbone(self, notes: Notes) -> str:
        """``WRN-28 -> resnet12_wide``; a stand-in and an encoder that was not trained with the rest are marked."""
        cell, sheet = self.cell, sheet_backbone(self.cell)
        if not cell.answers or cell.recipe is None:
            return self.row.backbone
        stands_in = cell.recipe.backbone == cell.cell.stand_in
        return f"{self.row.backbone} -> {cell.recipe.backbone}" + notes.mark(
            f"{cell.recipe.backbone} stands in for {sheet}" if stands_in else "",
            trained_before(cell),
        )

    def clean(self, runs: str) -> str:
        if not (answers := list(self.cell.clean.values())):
            return DASH
        found = estimate(self.cell.values_of(answers))
        return linked(percent(found.mean, found.interval), answers[-1].record, runs)


def trained_before(cell: Filled) -> str:
    """What became of an encoder that was not trained with the rest from the first step on."""
    if not cell.answers or cell.recipe is None:
        return ""
    if cell.frozen:
        return "encoder trained before, then frozen"
    if cell.recipe.train.start_head:
        return "starts from encoder and head of a learner trained before"
    return "starts from an encoder trained before" if cell.recipe.backbone_weights else ""


def _other_start(cell: Filled) -> str:
    """`trained_before` where the published schedule has nothing of the kind."""
    published = recipe_called(cell.cell.recipe) if cell.cell.recipe else None
    return "" if published and published.backbone_weights else trained_before(cell)


def published_protocol(cell: Cell) -> str:
    """``1 query, BatchNorm: task``: how the published figure was measured, as far as it is known and matters."""
    asked, words = dict(cell.paper_ask), list[str]()
    if n_query := asked.get("n_query"):
        words.append("1 query" if n_query == 1 else f"{n_query} queries")
    words += [f"BatchNorm: {asked['batch_norm']}"] if "batch_norm" in asked else []
    words += ["class order"] if asked.get("slot_order") == "class-order" else []
    words += [] if words or not cell.paper else ["each query alone"]
    return ", ".join([*words, *([cell.trained_on] if cell.trained_on else [])])


def _of_published(cell: Cell) -> tuple[str, ...]:
    other = cell.published and cell.published != cell.paper
    return (
        cell.paper_note,
        f"published on {cell.trained_on}; ours on train alone" if cell.trained_on else "",
        f"{cell.published_text} in its own paper or code" if other else "",
    )


def _beside_centroid(cell: Filled) -> str:
    """Of a head that counts; one that does not has it in its verdict."""
    found = against_centroid(cell) if cell.answers and cell.frozen else None
    if found is None or found.mean < -found.interval:
        return ""
    return f"the head minus nearest centroid on the same tasks and features: {found.points}"


def reached_text(study: Study, cells: CellMap, *columns: str) -> str:
    """``Within or above the published figure: 7 of 20 systems at 1-shot (5 within, 2 above); 1 of 5 run ...``"""
    found = "; ".join(_reached(study, cells, column) for column in columns or study.columns)
    return f"Within or above the published figure: {found}."


def _reached(study: Study, cells: CellMap, column: str) -> str:
    found: dict[str, list[Filled]] = {}
    for row in study.rows:
        cell = cells.get((row.label, column))
        if row.group != OURS and cell and cell.cell.paper and cell.recipe:
            found.setdefault(cell.recipe.method, []).append(cell)
    run = {stem: {verdict(c).kind for c in of} for stem, of in found.items() if any(c.answers for c in of)}
    within, above = (sum(kind in kinds for kinds in run.values()) for kind in ("within", "above"))
    amount = f"{len(found)} systems" if len(run) == len(found) else f"{len(run)} run"
    return f"{within + above} of {amount} at {column} ({within} within, {above} above)"


def lean_systems_table(study: Study, cells: CellMap, runs: str) -> str:
    """Four columns; what there is to know of a figure or a verdict is noted, equal notes once."""
    rows = {row.label: row for row in study.rows}
    found = [cells[label, "1-shot"] for label in rows if (label, "1-shot") in cells and label not in VARIANTS]
    notes, pages = Notes(), f"{runs.removesuffix('results/runs')}docs/methods"
    lines = [SystemLine(rows[cell.row], like_paper(cell)) for cell in found if cell.recipe and cell.cell.paper]
    texts = [("", *_lean_texts(line, runs, pages, notes)) for line in lines]
    told = f"{reached_text(study, cells, '1-shot')}\n\n{notes.markdown()}"
    return Table(_columns(LEAN_COLUMNS), texts, note=told).markdown()


def _lean_texts(line: SystemLine, runs: str, pages: str, notes: Notes) -> tuple[str, ...]:
    cell, beside = line.cell, against_paper(line.cell)
    word, _, why = verdict(cell).words.partition(": ")
    if beside and beside.apart:
        figure = percent(beside.figure.mean, beside.figure.interval)
        keys = re.sub(r" \(.*?\)", "", beside.apart)
        ours, why = DASH + notes.mark(f"{figure} with other {keys}"), ""
    else:
        ours = ours_like_paper(cell, runs, notes)
    remark = CLASS_ORDER if cell.in_class_order else ""
    known = _of_published(cell.cell)[:2] if beside and "batch_norm" not in cell.cell.paper_ask else ()
    system, marks = line.system(pages).replace("†]", "]"), notes.mark(why, remark, *known, _other_start(cell))
    return system, cell.cell.paper_text, ours, f"{word}{_share(cell)}{marks}"


def _share(cell: Filled) -> str:
    """`` (33%)``: of the published schedule, bold all of it."""
    if not cell.answers or not cell.cell.recipe:
        return ""
    share = cell.iterations / recipe_called(cell.cell.recipe).train.iterations
    return f" ({bold_if_whole(f'{100 * share:.0f}%', cell)})"


def ours_like_paper(cell: Filled, runs: str, notes: Notes) -> str:
    """Ours asked as the paper's with a link to its record; or a dash, and the figure that there is in a note."""
    if not (beside := against_paper(cell)):
        return DASH
    figure = percent(beside.figure.mean, beside.figure.interval)
    if not beside.apart:
        return linked(figure, beside.answer.record, runs)
    asked = describe_protocol(cell.protocol).partition(", ")[2]
    return DASH + notes.mark(f"asked otherwise ({asked}) ours is {linked(figure, beside.answer.record, runs)}")


def trained(cell: Filled) -> str:
    """``20,000 of 60,000``: steps of those of the published schedule, bold over all of it; and seeds."""
    if not cell.answers:
        return ""
    whole = recipe_called(cell.cell.recipe).train.iterations if cell.cell.recipe else cell.iterations
    seeds = f", {len(cell.first)} seeds" if len(cell.first) > 1 else ""
    return bold_if_whole(f"{cell.iterations:,} of {whole:,}", cell) + seeds


def bold_if_whole(words: str, cell: Filled) -> str:
    """Bold over all of the published schedule."""
    return f"**{words}**" if cell.scale == "paper" else words
