"""The report: every study, what it says of the paper's claims, and the figures, as one HTML file without network."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from engram.errors import EngramError
from engram.files import UNPACKING, check_overwritable, check_zip, open_regular
from engram.ledger import conflicts, current_commit
from engram.report.book import Book
from engram.report.cells import Filled
from engram.report.claims import NOTE as CLAIMS_NOTE
from engram.report.claims import VERDICTS, claims_table
from engram.report.costs import cost_figure, cost_points
from engram.report.curves import box_plots, training_lines, training_runs
from engram.report.episode import EpisodePicture
from engram.report.figures import accuracy_by_position, position_curves, reliability_curves, validation_curves
from engram.report.page import Section, episode_html, figure_grid, reliability_section, render_page, wide
from engram.report.stream_figures import stream_figures
from engram.report.studies import comparisons_table, overview_table, study_table
from engram.studies.schema import Study

TITLE = "Engram: the paper and what we find"
ORDER = ("table1", "table2", "table3", "table4", "figure3", "figure4", "order_leak", "order_leak_mini")
MOST_RELIABILITY = 9
HOW_CELL = (
    " Each place holds our accuracy in % with its 95 % interval over tasks and, with several seeds, over seeds; the "
    "bar is ours, the tick the paper's. Short runs took minutes in place of the paper's schedule."
)
OVERVIEW = "What is measured and what is not; the command runs what is missing, and --dry-run tells how long it takes."
STREAMS = (
    "Accuracy along streams of 128 tasks, by the number of earlier encounters with a class, and by the tasks since it "
    "was last met: a line that falls there forgets. Bands are 95 % intervals over streams."
)
COST = (
    "Minutes of training, on whatever device a run had, against accuracy on miniImageNet, 5-way 1-shot. Squares were "
    "measured in class order and are no evidence."
)
EPISODES = (
    "One task of unseen classes: supports along the top, queries down the side, a bar for the probability of each "
    "class. Beside it the graph, layer by layer: the stronger the blue, the more two images are taken for one class."
)


def write_report(studies: Sequence[Study], results: Path, report: Path) -> Path:
    """Draw the report of all studies of the box and of the user's that are given."""
    check_overwritable(report, ".html", f"<title>{TITLE}")
    book = Book(results, tuple(s for s in studies if s.own))
    runs = Path(os.path.relpath(results, report.parent)).as_posix()
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(report_page(book, runs), encoding="utf-8")
    except OSError as error:
        raise EngramError(f"the report {report} cannot be written: {error.strerror}") from error
    return report


def report_page(book: Book, runs: str) -> str:
    own = [name for name in book.studies if name not in ORDER]
    ordered = [book.studies[name] for name in (*(n for n in ORDER if n in book.studies), *own)]
    drawings = stream_figures(book.trusted[0], book.folder).values()
    pictures = [p for path in sorted((book.folder.parent / "pictures").glob("*.npz")) if (p := read_picture(path))]
    problems = [f"<li>{escape(words)}</li>" for words in (*book.trusted[1], *conflicts(book.trusted[0]))]
    listed = "\n".join(['<ul class="problems">', *problems, "</ul>"]) if problems else ""
    sections = [
        Section("What is filled", OVERVIEW, overview_table(ordered, book.cells, "report").html("grid cards")),
        Section(
            "What the paper claims, what we find",
            CLAIMS_NOTE,
            claims_table(book.findings, "report").html("claims cards"),
        ),
        *(_study(book, study, runs) for study in ordered),
        Section(
            "Along the stream: memory and forgetting",
            STREAMS,
            wide([f'<figure class="scroll">{drawing}</figure>' for drawing in drawings]),
        ),
        Section("Cost against accuracy", COST, _cost(book)),
        _reliability(book),
        Section("A task through the layers", EPISODES, wide([episode_html(p) for p in pictures])),
        Section("Records that do not count, or disagree", "Each is named; none is averaged in.", listed),
    ]
    made = time.strftime("%d %B %Y", time.gmtime())
    footer = f"Drawn on {made} from {len(book.trusted[0])} records, with Engram at commit {current_commit()}."
    return render_page(TITLE, _headline(book), sections, footer, "study.css")


def _headline(book: Book) -> str:
    cells = [c for found in book.cells.values() for c in found.values()]
    done = sum(bool(c.answers) for c in cells)
    counts = ", ".join(f"{verdict}: {sum(f.verdict == verdict for f in book.findings)}" for verdict in VERDICTS)
    return f"{done} of {len(cells)} cells are measured. Of {len(book.findings)} claims of the paper, {counts}."


def _study(book: Book, study: Study, runs: str) -> Section:
    cells = book.cells[study.name]
    parts = [study_table(study, cells, runs, "report").html("grid cards")]
    if (compared := comparisons_table(study, cells)).rows:
        parts.append(f'<h3 class="part">Differences, in points</h3>{compared.html("cards")}')
    if study.kind == "training":
        parts += [part for column in study.columns for part in _training_figures(book, study, column)]
    curves = position_curves(study, cells) if study.kind == "stream" else []
    if curves and max(len(c.accuracy) for c in curves) <= 16:
        parts.append(figure_grid([accuracy_by_position(curves)], "figures one"))
    return Section(study.title, study.description + (HOW_CELL if study.name == ORDER[0] else ""), "\n".join(parts))


def _training_figures(book: Book, study: Study, column: str) -> list[str]:
    """Node accuracy, edge accuracy and boxes of a column, as far as runs are recorded."""
    if not (runs := training_runs(study, book.cells[study.name], book.ledger, column)):
        return []
    metrics = {"validation_accuracy": "node accuracy", "validation_edge_accuracy": "edge accuracy"}
    curves = {words: training_lines(runs, metric) for metric, words in metrics.items()}
    pictures = [validation_curves(lines, f"validation {words}") for words, lines in curves.items() if lines]
    heading = f'<h3 class="part">{escape(column)}, over training</h3>'
    return [heading, figure_grid([*pictures, box_plots(runs, column)], "figures two")]


def _recorded(book: Book, *names: str) -> list[Filled]:
    return [cell for name in names for cell in book.cells[name].values() if cell.answers]


def _cost(book: Book) -> str:
    points = cost_points([c for c in _recorded(book, "table1") if c.cell.column == "1-shot"])
    if not points:
        return ""
    key = "".join(f"<li>{escape(p.label)}</li>" for p in points)
    return f'<div class="figures one"><figure>{cost_figure(points)}<ol class="key">{key}</ol></figure></div>'


def _reliability(book: Book) -> Section:
    cells = _recorded(book, "table1", "order_leak_mini", "order_leak")
    single = {c.first[0].record.run_id: c for c in reversed(cells) if c.cell.measure == "accuracy"}
    return reliability_section(reliability_curves(list(reversed(single.values())))[:MOST_RELIABILITY])


def read_picture(path: Path) -> EpisodePicture | None:
    """An answered task as `engram picture` keeps it; None where the file is none."""
    try:
        with open_regular(path) as stream:
            check_zip(stream)
            arrays = np.load(stream)
            values = {key: arrays[key] for key in arrays.files if key not in ("title", "class_names")}
            names, title = [str(n) for n in arrays["class_names"]], str(arrays["title"])
        return EpisodePicture(**{"edges": None, **values}, class_names=names, title=title)
    except (OSError, KeyError, ValueError, TypeError, EOFError, MemoryError, EngramError, *UNPACKING):
        return None
