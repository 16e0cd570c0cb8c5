"""The report: every study, what it says of the paper's claims, and the figures, as one HTML file without network."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from engram.errors import EngramError
from engram.ledger import conflicts, current_commit
from engram.report.claims import NOTE as CLAIMS_NOTE
from engram.report.claims import VERDICTS
from engram.report.contents import EpisodePicture
from engram.report.figures import accuracy_by_position, reliability_diagram, validation_curves
from engram.report.page import Section, episode_html, figure_grid, render_page
from engram.report.stream_figures import stream_drawings
from engram.report.study.cells import Filled
from engram.report.study.figures import (
    box_plots,
    cost_figure,
    cost_points,
    position_curves,
    reliability_curves,
    training_lines,
    training_runs,
)
from engram.report.study.html import claims_html, comparisons_html, overview_html, study_grid
from engram.report.study.sections import StudyBook
from engram.report.study.style import STUDY_STYLE
from engram.studies.schema import Study

ORDER = ("table1", "table2", "table3", "table4", "figure3", "figure4", "order_leak", "order_leak_mini")
MOST_RELIABILITY = 9
HOW_CELL = (
    "Each place holds our accuracy in % with its 95 % interval over tasks and, with several seeds, over seeds; the bar "
    "is ours, the tick the paper's. Short runs took minutes in place of the paper's schedule."
)


def write_report(studies: Sequence[Study], results: Path, report: Path) -> Path:
    """Draw the report of all studies of the box and of the user's that are given."""
    book = StudyBook(results, tuple(s for s in studies if s.own))
    runs = Path(os.path.relpath(results, report.parent)).as_posix()
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(report_page(book, runs), encoding="utf-8")
    except OSError as error:
        raise EngramError(f"the report {report} cannot be written: {error.strerror}") from error
    return report


def report_page(book: StudyBook, runs: str) -> str:
    own = [name for name in book.studies if name not in ORDER]
    ordered = [book.studies[name] for name in (*(n for n in ORDER if n in book.studies), *own)]
    sections = [_overview(book, ordered), _claims(book)]
    sections += [_study(book, study, runs) for study in ordered]
    sections += [s for s in (_streams(book), _cost(book), _reliability(book), _episodes(book), _problems(book)) if s]
    made = time.strftime("%d %B %Y", time.gmtime())
    footer = f"Drawn on {made} from {len(book.trusted[0])} records, with Engram at commit {current_commit()}."
    return render_page(
        "Engram: the paper and what we find", _headline(book), sections, footer, STUDY_STYLE, contents=True
    )


def _headline(book: StudyBook) -> str:
    cells = [c for found in book.cells.values() for c in found.values()]
    done = sum(bool(c.answers) for c in cells)
    counts = ", ".join(f"{verdict}: {sum(f.verdict == verdict for f in book.findings)}" for verdict in VERDICTS)
    return f"{done} of {len(cells)} cells are measured. Of {len(book.findings)} claims of the paper, {counts}."


def _overview(book: StudyBook, studies: Sequence[Study]) -> Section:
    sentence = (
        "What is measured and what is not; the command runs what is missing, and --dry-run tells how long it takes."
    )
    return Section("What is filled", sentence, overview_html(studies, book.cells))


def _claims(book: StudyBook) -> Section:
    return Section("What the paper claims, what we find", CLAIMS_NOTE, claims_html(book.findings))


def _study(book: StudyBook, study: Study, runs: str) -> Section:
    cells = book.cells[study.name]
    parts = [study_grid(study, cells, runs), comparisons_html(study, cells)]
    if study.kind == "training":
        parts.append(_training_figures(book, study))
    if study.kind == "stream" and (curves := position_curves(study, cells)):
        longest = max(len(c.accuracy) for c in curves)
        parts.append(figure_grid([accuracy_by_position(curves)], "figures one") if longest <= 16 else "")
    how = f"{study.description} {HOW_CELL}" if study.name == ORDER[0] else study.description
    return Section(study.title, how, "\n".join(p for p in parts if p))


def _training_figures(book: StudyBook, study: Study) -> str:
    """For each column node accuracy, edge accuracy and boxes, as far as runs are recorded."""
    parts = []
    for column in study.columns:
        runs = training_runs(study, book.cells[study.name], book.ledger, column)
        if not runs:
            continue
        pictures = []
        for metric, words in (("validation_accuracy", "node accuracy"), ("validation_edge_accuracy", "edge accuracy")):
            if curves := training_lines(runs, metric):
                pictures.append(validation_curves(curves, f"validation {words}"))
        pictures.append(box_plots(runs, column))
        parts += [f'<h3 class="part">{escape(column)}, over training</h3>', figure_grid(pictures, "figures two")]
    return "\n".join(parts)


def _streams(book: StudyBook) -> Section | None:
    drawings = stream_drawings(book.trusted[0], book.folder)
    if not drawings:
        return None
    sentence = (
        "Accuracy along streams of 128 tasks, by the number of earlier encounters with a class, and by the tasks since "
        "it was last met: a line that falls there forgets. Bands are 95 % intervals over streams."
    )
    body = "\n".join(f'<figure class="scroll">{drawing}</figure>' for drawing in drawings.values())
    return Section("Along the stream: memory and forgetting", sentence, f'<div class="figures wide">{body}</div>')


def _recorded(book: StudyBook, name: str) -> list[Filled]:
    return [cell for cell in book.cells[name].values() if cell.answers]


def _cost(book: StudyBook) -> Section | None:
    points = cost_points([c for c in _recorded(book, "table1") if c.cell.column == "1-shot"])
    if not points:
        return None
    sentence = (
        "Minutes of training, on whatever device a run had, against accuracy on miniImageNet, 5-way 1-shot. Squares "
        "were measured in class order and are no evidence."
    )
    key = "".join(f"<li>{escape(p.label)}</li>" for p in points)
    body = f'<div class="figures one"><figure>{cost_figure(points)}<ol class="key">{key}</ol></figure></div>'
    return Section("Cost against accuracy", sentence, body)


def _reliability(book: StudyBook) -> Section | None:
    cells = [c for name in ("table1", "order_leak_mini", "order_leak") for c in _recorded(book, name)]
    single = {c.first[0].record.run_id: c for c in reversed(cells) if c.cell.measure == "accuracy"}
    curves = reliability_curves(list(reversed(single.values())))[:MOST_RELIABILITY]
    if not curves:
        return None
    sentence = (
        "Points on the dashed line mean that answers given with 80 % confidence are right 80 % of the time; points "
        "below it are overconfident, above it too timid; the bars show how many answers had each confidence."
    )
    return Section(
        "Can the confidence be trusted?",
        sentence,
        figure_grid([reliability_diagram(c) for c in curves], "figures small"),
    )


def _episodes(book: StudyBook) -> Section | None:
    pictures = [p for path in sorted((book.folder.parent / "pictures").glob("*.npz")) if (p := _picture(path))]
    if not pictures:
        return None
    sentence = (
        "One task of unseen classes: supports along the top, queries down the side, a bar for the probability of each "
        "class. Beside it the graph, layer by layer: the stronger the blue, the more two images are taken for one "
        "class."
    )
    body = "\n".join(episode_html(p) for p in pictures)
    return Section("A task through the layers", sentence, f'<div class="figures wide">{body}</div>')


def _picture(path: Path) -> EpisodePicture | None:
    try:
        with np.load(path) as arrays:
            values = {key: arrays[key] for key in arrays.files if key not in ("title", "class_names")}
            names, title = [str(n) for n in arrays["class_names"]], str(arrays["title"])
        return EpisodePicture(**{"edges": None, **values}, class_names=names, title=title)
    except (OSError, KeyError, ValueError, TypeError):
        return None


def _problems(book: StudyBook) -> Section | None:
    sentences = [*book.trusted[1], *conflicts(book.trusted[0])]
    if not sentences:
        return None
    body = "\n".join(['<ul class="problems">', *(f"<li>{escape(s)}</li>" for s in sentences), "</ul>"])
    return Section("Records that do not count, or disagree", "Each is named; none is averaged in.", body)
