"""Studies as Markdown: the original's layout with ours beside the paper, paired differences, what is filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from engram.ledger import Ledger, RunRecord, record_path
from engram.protocol import CLASS_ORDER_MARK, describe_protocol
from engram.report.beside_paper import BESIDE_NOTE, Beside, against_paper
from engram.report.claims import points
from engram.report.rows import percent as rows_percent
from engram.report.study.cells import Filled, comparisons, scale_text
from engram.report.tables import markdown_table
from engram.report.verdicts import verdict_text
from engram.studies.schema import Row, Study

CellMap = Mapping[tuple[str, str], Filled]
STUDY_NOTE = (
    "Ours: accuracy in %, ± its 95 % interval over tasks and, with several seeds, over seeds. "
    f"{BESIDE_NOTE} Short: fewer iterations than the paper's schedule, no fair test of a published figure."
)
SYSTEMS_NOTE = (
    "Paper: the figure in the table of the CML-BGNN paper; published: that of the system's own paper or code. "
    f"{BESIDE_NOTE} "
    "Milliseconds per iteration: of a step that has the device to itself (`benchmarks/train_step.py`); with ~ of the "
    "run, without validation and with whatever shared the device. Audit: the newest of the recipe, else of the "
    "method's recipe that is named."
)


REGIME = {
    "history": None, "transductive": True, "statistics": "running", "query_statistics": "with_support",
    "batch_norm": "running", "vote": "labelled",
}  # fmt: skip
"""settings that decide what an audit finds, with what holds where a recipe is silent"""


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


def audit_text(audit: RunRecord | None, recipe: str = "") -> str:
    """What an audit found, and of which recipe where it is another: ``4 leaks``, ``clean, declared: company``."""
    if audit is None:
        return ""
    words = verdict_text(audit)
    return words if not recipe or audit.recipe_name == recipe else f"{words} (`{audit.recipe_name}`)"


def study_table(study: Study, cells: CellMap, runs: str) -> str:
    """Rows and columns as in the original, two columns for each: paper and ours."""
    with_paper = [any(cells[k].cell.paper for k in cells if k[1] == column) for column in study.columns]
    header, right = ["", "Backbone"], []
    for column, has_paper in zip(study.columns, with_paper, strict=True):
        header += [f"{column}, paper"] * has_paper + [f"{column}, ours"]
    right = list(range(2, len(header)))
    body = []
    group = ""
    for row in study.rows:
        if row.group and row.group != group:
            body.append([f"**{row.group}**", *[""] * (len(header) - 1)])
        group = row.group
        body.append(_study_row(study, row, cells, runs, with_paper))
    note = STUDY_NOTE
    if any(cells[k].protocol.get("slot_order") == "class-order" for k in cells):
        note += f" Class order: {CLASS_ORDER_MARK.split(': ')[1]}."
    return f"{markdown_table(header, body, right=right)}\n\n{note}"


def _study_row(study: Study, row: Row, cells: CellMap, runs: str, with_paper: Sequence[bool]) -> list[str]:
    remark = f" ({row.note})" if row.note else ""
    line = [f"{row.label}{remark}", row.backbone]
    for column, has_paper in zip(study.columns, with_paper, strict=True):
        cell = cells.get((row.label, column))
        if has_paper:
            line.append(paper_text(cell) or "-" if cell else "-")
        line.append(ours_text(cell, runs) if cell else "")
    return line


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


def comparisons_table(study: Study, cells: CellMap) -> str:
    """Every declared comparison whose two cells are recorded; "" where there is none."""
    body = []
    for pair, column, first, second, found in comparisons(study, cells):
        kind = "same tasks" if found.paired else "different tasks"
        names, trained = f"{pair.first} minus {pair.second}", trained_text(first, second)
        body.append((names, column, points(found), trained, kind, str(found.seeds), found.word))
    if not body:
        return ""
    header = ("Difference, in points", "Column", "Mean ± 95 % interval", "Iterations", "Paired", "Seeds", "Reading")
    return markdown_table(header, body, right=(2, 5))


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


def overview_table(studies: Sequence[Study], cells: Mapping[str, CellMap]) -> str:
    """How much of each study is filled."""
    body = []
    for study in studies:
        found = list(cells[study.name].values())
        full = sum(bool(c.answers) and c.scale == "paper" for c in found)
        short = sum(bool(c.answers) and c.scale == "short" for c in found)
        absent = sum(c.missing == "no recipe yet" for c in found)
        left = len(found) - full - short - absent
        body.append((f"`{study.name}`", study.title, *map(str, (len(found), full, short, left, absent))))
    header = ("Study", "", "Cells", "Full schedule", "Short", "Not run", "No recipe yet")
    return markdown_table(header, body, right=(2, 3, 4, 5, 6))


def systems_table(
    study: Study, cells: CellMap, ledger: Ledger, runs: str, steps: Mapping[tuple[str, str], float]
) -> str:
    """One line for each system and setting of the study that is recorded or that has a recipe to run.

    ``steps``: milliseconds measured alone, by digest of the recipe and device.
    """
    header = (
        "System", "Backbone", "Protocol", "Paper, %", "Published, %", "Ours, %", "Ours, 15 queries, %",
        "ms per iteration", "Minutes trained", "Audit",
    )  # fmt: skip
    body = []
    for row in study.rows:
        for column in study.columns:
            cell = cells.get((row.label, column))
            if cell and (cell.answers or column == study.columns[0]):
                body.append(_system_row(row, column, cell, ledger, runs, steps))
    return f"{markdown_table(header, body, right=(3, 4, 5, 6, 7, 8))}\n\n{SYSTEMS_NOTE}{paper_notes(study, cells)}"


def paper_notes(study: Study, cells: CellMap) -> str:
    """What recipes say of their published figures, a line each; "" where none says anything."""
    lines = []
    for row in study.rows:
        recipes = [c.recipe for column in study.columns if (c := cells.get((row.label, column))) and c.recipe]
        if recipes and recipes[0].paper and recipes[0].paper.note:
            lines.append(f"- {row.label}: {recipes[0].paper.note}.")
    return "\n\nOf the published figures:\n\n" + "\n".join(lines) if lines else ""


def _system_row(
    row: Row, column: str, cell: Filled, ledger: Ledger, runs: str, steps: Mapping[tuple[str, str], float]
) -> tuple[str, ...]:
    recipe, paper = cell.recipe, cell.recipe.paper if cell.recipe else None
    published = f"{paper.published:.2f}" if paper and paper.published else ""
    if paper and paper.published and paper.published_interval:
        published += f" ± {paper.published_interval:.2f}"
    if not cell.answers or recipe is None:
        asked = (f"5-way {column}", paper_text(cell), published, ours_text(cell, runs))
        return (row.label, row.backbone, *asked, "", "", "", "")
    trainer = cell.first[-1].trainer
    alone = steps.get((trainer.recipe_digest, trainer.device))
    return (
        row.label, recipe.backbone, describe_protocol(cell.protocol, markdown=True), paper_text(cell), published,
        ours_text(cell, runs), many_queries_text(cell), *cost_texts(trainer.training, alone, trainer.device),
        audit_text(cell.audit or alike_audit(cell, ledger), recipe.name),
    )  # fmt: skip


def many_queries_text(cell: Filled) -> str:
    """With 15 queries per class: ``53.76 ± 0.48``; of several seeds each that was asked, by name; "" where none was."""
    parts = []
    for answer in cell.first:
        evaluations = answer.record.evaluations
        asked = [e.metrics for e in evaluations if e.protocol["n_query"] == 15 and e.protocol != cell.protocol]
        for metrics in asked[:1]:
            seed = f", seed {answer.seed}" if len(cell.first) > 1 else ""
            parts.append(f"{rows_percent(metrics['accuracy'], metrics['interval'])}{seed}")
    return "; ".join(parts)


def cost_texts(training: Mapping[str, float], alone: float | None, device: str) -> tuple[str, str]:
    """Milliseconds per iteration, marked where they are a CPU's, and minutes; empty where a run has no such thing."""
    iterations, seconds = training.get("iterations"), training.get("seconds")
    if not iterations or seconds is None:
        return "", ""
    step = 1000 * (seconds - training.get("validation_seconds", 0.0)) / iterations
    milliseconds = f"~{step:.1f}" if alone is None else f"{alone:.1f}"
    return milliseconds + (" (cpu)" if device.startswith("cpu") else ""), f"{seconds / 60:.1f}"


def alike_audit(cell: Filled, ledger: Ledger) -> RunRecord | None:
    """The newest audit of the same method in the same `REGIME`, trained in the same slot order."""
    assert cell.recipe is not None

    def kind(settings: Mapping[str, object], order: object) -> tuple[object, ...]:
        return order, *(settings.get(key, default) for key, default in REGIME.items())

    own = kind(cell.recipe.method_settings, cell.recipe.data.slot_order)
    audits = [r for r in ledger.records if (r.kind, r.status, r.method) == ("audit", "finished", cell.recipe.method)]
    alike = [r for r in audits if kind(r.recipe["method_settings"], r.recipe["data"]["slot_order"]) == own]
    return alike[-1] if alike else None
