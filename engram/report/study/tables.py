"""Studies as Markdown: the original's layout with ours beside the paper, paired differences, what is filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engram.ledger import record_path
from engram.protocol import CLASS_ORDER_MARK
from engram.report.beside_paper import BESIDE_NOTE, Beside, against_paper
from engram.report.claims import points
from engram.report.columns import Column, markdown
from engram.report.study.cells import Compared, Filled, comparisons, scale_text
from engram.studies.schema import Row, Study

CellMap = Mapping[tuple[str, str], Filled]
STUDY_NOTE = (
    "Ours: accuracy in %, ± its 95 % interval over tasks and, with several seeds, over seeds. "
    f"{BESIDE_NOTE} Short: fewer iterations than the paper's schedule, no fair test of a published figure."
)


def percent(value: float) -> str:
    return f"{100 * value:.2f}"


def figure_text(cell: Filled) -> str:
    """``57.10 ± 0.52``, with the number of seeds and their spread where there are several."""
    assert cell.estimate is not None
    found = cell.estimate
    spread = (
        f", {found.seeds} seeds, spread {percent(found.seed_deviation)}" if found.seed_deviation is not None else ""
    )
    return f"{percent(found.mean)} ± {percent(found.interval)}{spread}"


def paper_text(cell: Filled) -> str:
    if not cell.cell.paper:
        return ""
    return f"{cell.cell.paper:.2f}" + (f" ± {cell.cell.interval:.2f}" if cell.cell.interval else "")


def study_table(study: Study, cells: CellMap, runs: str) -> str:
    """Rows and columns as in the original, two columns for each: paper and ours."""
    lines: list[Row | str] = []
    group = ""
    for row in study.rows:
        if row.group and row.group != group:
            lines.append(row.group)
        group = row.group
        lines.append(row)
    note = STUDY_NOTE
    if any(cells[k].protocol.get("slot_order") == "class-order" for k in cells):
        note += f" Class order: {CLASS_ORDER_MARK.split(': ')[1]}."
    return f"{markdown(study_columns(study, cells, runs), lines)}\n\n{note}"


def study_columns(study: Study, cells: CellMap, runs: str) -> list[Column[Row]]:
    """A column without a single figure in the paper has ours alone."""

    def both(name: str) -> list[Column[Row]]:
        def paper(row: Row) -> str:
            cell = cells.get((row.label, name))
            return paper_text(cell) or "-" if cell else "-"

        def ours(row: Row) -> str:
            cell = cells.get((row.label, name))
            return ours_text(cell, runs) if cell else ""

        in_paper = any(cells[key].cell.paper for key in cells if key[1] == name)
        columns = [Column(f"{name}, paper", paper, right=True)] if in_paper else []
        return [*columns, Column(f"{name}, ours", ours, right=True)]

    label = Column[Row]("", lambda row: row.label + (f" ({row.note})" if row.note else ""))
    return [label, Column("Backbone", lambda row: row.backbone), *(c for name in study.columns for c in both(name))]


def ours_text(cell: Filled, runs: str) -> str:
    """The figure with its link, difference and scale, or what to do."""
    if not cell.answers:
        return f"{cell.missing}: `{cell.command}`" if cell.command else cell.missing
    link = record_path(Path(runs), cell.first[-1].record).as_posix()
    words = [f"[{figure_text(cell)}]({link})", *beside_texts(against_paper(cell), runs), scale_text(cell)]
    if cell.protocol.get("slot_order") == "class-order":
        words.append("**class order**")
    return ", ".join(w for w in words if w).replace("), (", ") (")


def beside_texts(found: Beside | None, runs: str) -> list[str]:
    """``asked as in the paper [47.00 ± 1.41](...)`` where the cell shows another figure, and the gap in brackets."""
    if found is None:
        return []
    gap = f"({points(found.gap)}, {found.word})"
    if found.figure is None or found.answer is None:
        return [gap]
    link = record_path(Path(runs), found.answer.record).as_posix()
    figure = f"{percent(found.figure.mean)} ± {percent(found.figure.interval)}"
    return [f"asked as in the paper [{figure}]({link})", gap]


COMPARISON_COLUMNS: tuple[Column[Compared], ...] = (
    Column("Difference, in points", lambda c: f"{c.pair.first} minus {c.pair.second}"),
    Column("Column", lambda c: c.column),
    Column("Mean ± 95 % interval", lambda c: points(c.found), right=True),
    Column("Iterations", lambda c: trained_text(c.first, c.second)),
    Column("Paired", lambda c: "same tasks" if c.found.paired else "different tasks"),
    Column("Seeds", lambda c: str(c.found.seeds), right=True),
    Column("Reading", lambda c: c.found.word),
)


def comparisons_table(study: Study, cells: CellMap) -> str:
    """Every declared comparison whose two cells are recorded; "" where there is none."""
    found = list(comparisons(study, cells))
    return markdown(COMPARISON_COLUMNS, found) if found else ""


def trained_text(first: Filled, second: Filled) -> str:
    """How long each of two compared models was trained: ``10,000 each``, ``70,000 and 10,000``."""
    if not (first.iterations or second.iterations):
        return ""
    if first.iterations == second.iterations:
        return f"{first.iterations:,} each"
    return f"{first.iterations:,} and {second.iterations:,}"


def study_section(study: Study, cells: CellMap, runs: str) -> str:
    parts = [study.description, study_table(study, cells, runs), comparisons_table(study, cells)]
    return "\n\n".join(part for part in parts if part)


@dataclass(frozen=True)
class Progress:
    """How much of a study is filled."""

    study: Study
    cells: Sequence[Filled]

    def answered(self, scale: str) -> int:
        return sum(bool(c.answers) and c.scale == scale for c in self.cells)

    @property
    def absent(self) -> int:
        return sum(c.missing == "no recipe yet" for c in self.cells)

    @property
    def left(self) -> int:
        return len(self.cells) - self.answered("paper") - self.answered("short") - self.absent


OVERVIEW_COLUMNS: tuple[Column[Progress], ...] = (
    Column("Study", lambda p: f"`{p.study.name}`", tables=("docs",)),
    Column("", lambda p: p.study.title),
    Column("Cells", lambda p: str(len(p.cells)), right=True),
    Column("Full schedule", lambda p: str(p.answered("paper")), right=True),
    Column("Short", lambda p: str(p.answered("short")), right=True),
    Column("Not run", lambda p: str(p.left), right=True),
    Column("No recipe yet", lambda p: str(p.absent), right=True),
    Column("Command", lambda p: f"`engram reproduce {called(p.study)}`", tables=("report",)),
)


def called(study: Study) -> str:
    """What a command calls it."""
    return study.where if study.own else study.name.replace("_", "-")


def progress(studies: Sequence[Study], cells: Mapping[str, CellMap]) -> list[Progress]:
    return [Progress(study, list(cells[study.name].values())) for study in studies]


def overview_table(studies: Sequence[Study], cells: Mapping[str, CellMap]) -> str:
    """How much of each study is filled."""
    return markdown(OVERVIEW_COLUMNS, progress(studies, cells), "docs")
