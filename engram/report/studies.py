"""Tables of studies: the original's layout with ours beside the paper, paired differences, what is filled.

A column says how it stands on a page of the ``docs`` and in the HTML ``report``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from operator import attrgetter
from typing import NamedTuple

from engram.protocol import CLASS_ORDER_MARK, describe_protocol
from engram.report.cells import CellMap, Compared, Filled, comparisons, scale_text
from engram.report.rows import file_of, linked
from engram.report.table import Column, Notes, Table, folded, headed, percent
from engram.report.verdicts import against_paper
from engram.studies.schema import Row, Study

DOCS, REPORT = ("docs",), ("report",)
UNTOUCHED = ("not run", "no recipe yet", "not in the paper")
"""what is missing of a cell that nobody has tried to fill"""
STUDY_NOTE = (
    "Ours: accuracy in %, ± its 95 % interval over tasks and, with several seeds, over seeds. "
    "In brackets: ours minus the paper's under the paper's protocol (BatchNorm statistics, queries per class, query "
    "order, as far as these are known); if that is not recorded, how the protocols differ. "
    "Short: fewer iterations than the paper's schedule, not a fair test of a published figure."
)


def study_table(study: Study, cells: CellMap, runs: str, place: str) -> Table[Row]:
    """Rows and columns as in the original: on a page two columns for each, paper and ours, with notes below."""
    notes = Notes()
    texts = {key: ours_text(cell, runs, notes) for key, cell in cells.items()} if place in DOCS else {}
    note = STUDY_NOTE
    if any(cell.in_class_order for cell in cells.values()):
        note += f" Class order: {CLASS_ORDER_MARK.split(': ')[1]}."
    figures = [column for name in study.columns for column in _figures(name, cells, texts, runs)]
    told = "\n\n".join(filter(None, (note, notes.markdown())))
    return Table((LABEL, BACKBONE, *figures), headed(study.rows, attrgetter("group")), place, note=told)


def study_markdown(study: Study, cells: CellMap, runs: str) -> str:
    """The study on a page; of one that nobody has begun the published figures alone, folded, and how to run it."""
    if any(cell.answers or cell.missing not in UNTOUCHED for cell in cells.values()):
        tables = study_table(study, cells, runs, "docs"), comparisons_table(study, cells)
        return "\n\n".join(filter(None, (study.description, *(table.markdown() for table in tables))))
    in_paper = [name for name in study.columns if any(c.cell.paper for key, c in cells.items() if key[1] == name)]
    columns = [_paper(name, name, cells) for name in in_paper]
    table = Table((LABEL, BACKBONE, *columns), headed(study.rows, attrgetter("group"))).markdown()
    parts = [f"{study.description} Nothing of it is run yet: `engram reproduce {study.called}`."]
    return "\n\n".join([*parts, *([folded("The published figures, in %", table)] if columns else [])])


def _label(row: Row) -> str:
    notes = [row.backbone if row.backbone != row.group else "", row.note]
    return escape(row.label) + "".join(f'<span class="note">{escape(note)}</span>' for note in notes if note)


LABEL = Column[Row]("", lambda row: row.label + (f" ({row.note})" if row.note else ""), html=_label)
BACKBONE = Column[Row]("Backbone", lambda row: row.backbone, places=DOCS)


def _paper(title: str, name: str, cells: CellMap) -> Column[Row]:
    def figure(row: Row) -> str:
        return cell.cell.paper_text or "-" if (cell := cells.get((row.label, name))) else "-"

    return Column(title, figure, right=True, places=DOCS)


def _figures(name: str, cells: CellMap, texts: Mapping[tuple[str, str], str], runs: str) -> list[Column[Row]]:
    """A column without a single figure in the paper has ours alone."""

    def drawn(row: Row) -> str:
        return cell_html(cell, runs) if (cell := cells.get((row.label, name))) else ""

    def ours(row: Row) -> str:
        return texts.get((row.label, name), "")

    in_paper = any(cells[key].cell.paper for key in cells if key[1] == name)
    return [
        *([_paper(f"{name}, paper", name, cells)] if in_paper else []),
        Column(f"{name}, ours", ours, right=True, places=DOCS),
        Column(name, ours, False, REPORT, html=drawn),
    ]


def ours_text(cell: Filled, runs: str, notes: Notes) -> str:
    """The figure with its link and its difference to the paper's, or what is missing; the rest is noted."""
    if cell.estimate is None:
        return cell.missing + notes.mark(f"`{cell.command}`" if cell.command else "")
    found, figure = cell.estimate, percent(cell.estimate.mean, cell.estimate.interval)
    if found.seed_deviation is not None:
        figure += f", {found.seeds} seeds, spread {percent(found.seed_deviation)}"
    words, apart = linked(figure, cell.first[-1].record, runs), ""
    if beside := against_paper(cell):
        like = linked(percent(beside.figure.mean, beside.figure.interval), beside.answer.record, runs)
        words += f", asked as in the paper {like}" if beside.other else ""
        words += f" ({beside.gap.points})" if beside.apart else f" ({beside.gap.points}, {beside.word})"
        apart = beside.word if beside.apart else ""
    order = "**class order**" if cell.in_class_order else ""
    return ", ".join(filter(None, (words, order))) + notes.mark(scale_text(cell), apart, cell.without)


def cell_html(cell: Filled, runs: str) -> str:
    """Our figure, the paper's below it, difference, badges, links; or what to do."""
    paper = f"paper {cell.cell.paper_text}" if cell.cell.paper else ""
    if cell.estimate is None:
        lines = line(paper) + (line(f"<code>{escape(cell.command)}</code>") if cell.command else "")
        return f'<span class="todo">{escape(cell.missing)}</span>{lines}'
    figure = f"{percent(cell.estimate.mean)} <small>± {percent(cell.estimate.interval)}</small>"
    if beside := against_paper(cell):
        asked = f" asked so {percent(beside.figure.mean, beside.figure.interval)}:" if beside.other else ""
        paper += f"<br>ours{asked} {beside.gap.points}, {escape(beside.word)}"
    marked = ' class="marked"' if cell.in_class_order else ""
    tick = f'<b style="left: {cell.cell.paper:.1f}%"></b>' if cell.cell.paper else ""
    return (
        f'<span class="figure">{figure}</span>'
        f'<span class="meter"><i{marked} style="width: {100 * cell.estimate.mean:.1f}%"></i>{tick}</span>'
        f"{line(paper)}<span>{''.join(_badges(cell, cell.estimate.seeds))}</span>{_details(cell, runs)}"
    )


def line(inner: str) -> str:
    return f'<span class="line">{inner}</span>' if inner else ""


def badge(words: str, kind: str = "", title: str = "") -> str:
    told = f' title="{escape(title)}"' if title else ""
    return f'<span class="badge {kind}"{told}>{escape(words)}</span>'


def _badges(cell: Filled, seeds: int) -> list[str]:
    protocol = cell.protocol
    order, length = str(protocol.get("slot_order", "shuffled")), protocol.get("stream_length", 1)
    names = ", named" if protocol.get("names") == "named" else ""
    queries = "1 query" if protocol.get("n_query") == 1 else f"{protocol.get('n_query')} queries"
    card = cell.first[0].training.get("card") or {}
    found = [
        badge(scale_text(cell), "good" if cell.scale == "paper" else "warn"),
        badge(order.replace("-", " "), "bad" if order == "class-order" else "", describe_protocol(protocol)),
        badge(f"T = {length}{names}") if length > 1 else "",
        badge(queries, "", "per class"),
        badge("transductive") if card.get("transductive") else "",
        badge("history erased") if protocol.get("erase_history") else "",
        badge(f"{seeds} seeds", "good") if seeds > 1 else badge("1 seed"),
    ]
    if cell.audit is None:
        return [*found, badge("no audit")]
    leaks = sum(f["verdict"] == "leak" for f in cell.audit.audit)
    words = f"audit: {leaks} leak{'s' if leaks > 1 else ''}" if leaks else "audit: clean"
    return [*found, badge(words, "bad" if leaks else "good", f"record {cell.audit.run_id}")]


def _details(cell: Filled, runs: str) -> str:
    """Intervals by source, protocol and records."""
    found, lines = cell.estimate, [describe_protocol(cell.protocol)]
    if found and found.seed_deviation is not None:
        lines.append(f"tasks alone ± {percent(found.task_interval)}, spread of seeds {percent(found.seed_deviation)}")
    others = next(iter(cell.answers.values()))[1:]
    for answer in others if not cell.cell.ask and cell.cell.measure == "accuracy" else ():
        metrics = answer.evaluation.metrics
        figure = percent(metrics["accuracy"], metrics["interval"])
        lines.append(f"{answer.evaluation.protocol['n_query']} queries per class: {figure}")
    links = " ".join(
        f'<a href="{escape(file_of(answers[0].record, runs))}">'
        f"{f'seed {seed}' if len(cell.answers) > 1 else 'record'}</a>"
        for seed, answers in cell.answers.items()
    )
    told = "".join(line(escape(words)) for words in lines)
    return f"<details><summary>protocol, records</summary>{told}{line(links)}</details>"


def _trained(compared: Compared) -> str:
    """How long each of two compared models was trained: ``10,000 each``, ``70,000 and 10,000``."""
    first, second = compared.first.iterations, compared.second.iterations
    if first == second:
        return f"{first:,} each" if first else ""
    return f"{first:,} and {second:,}"


def _reading(compared: Compared) -> str:
    strength = "good" if compared.found.mean > 0 else "bad"
    return badge(compared.found.word, "" if compared.found.word == "inside the noise" else strength)


COMPARISON_COLUMNS: tuple[Column[Compared], ...] = (
    Column("Difference, in points", lambda c: f"{c.first.row} minus {c.second.row}"),
    Column("Column", lambda c: c.first.cell.column),
    Column("Mean ± 95 % interval", lambda c: c.found.points, right=True),
    Column("Iterations", _trained),
    Column("Paired", lambda c: "same tasks" if c.found.paired else "different tasks"),
    Column("Seeds", lambda c: str(c.found.seeds), right=True),
    Column("Reading", lambda c: c.found.word, html=_reading),
)


def comparisons_table(study: Study, cells: CellMap) -> Table[Compared]:
    """Every declared comparison whose two cells are recorded."""
    return Table(COMPARISON_COLUMNS, comparisons(study, cells))


class Progress(NamedTuple):
    """How much of a study is filled."""

    study: Study
    cells: Sequence[Filled]

    def answered(self, scale: str) -> int:
        return sum(bool(c.answers) and c.scale == scale for c in self.cells)

    @property
    def absent(self) -> int:
        return sum(c.missing == "no recipe yet" for c in self.cells)

    @property
    def done(self) -> int:
        return self.answered("paper") + self.answered("short")

    @property
    def bar(self) -> str:
        share = f'<span class="meter"><i style="width: {100 * self.done / len(self.cells):.0f}%"></i></span>'
        return f"{self.done} of {len(self.cells)}{share}"


OVERVIEW_COLUMNS: tuple[Column[Progress], ...] = (
    Column("Study", lambda p: f"`{p.study.name}`", places=DOCS),
    Column("", lambda p: p.study.title),
    Column("Cells", lambda p: str(len(p.cells)), right=True, html=lambda p: p.bar),
    Column("Full schedule", lambda p: str(p.answered("paper")), right=True),
    Column("Short", lambda p: str(p.answered("short")), right=True),
    Column("Not run", lambda p: str(len(p.cells) - p.done - p.absent), right=True),
    Column("No recipe yet", lambda p: str(p.absent), right=True),
    Column("Command", lambda p: f"`engram reproduce {p.study.called}`", places=REPORT),
)


def overview_table(studies: Sequence[Study], cells: Mapping[str, CellMap], place: str) -> Table[Progress]:
    """How much of each study is filled."""
    return Table(OVERVIEW_COLUMNS, [Progress(s, list(cells[s.name].values())) for s in studies], place)
