"""Studies as HTML: tables in the original's layout with ours beside the paper, badges, claims, what is filled."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from engram.ledger import record_path
from engram.protocol import describe_protocol
from engram.report.beside_paper import against_paper
from engram.report.claims import CONFIRMED, NOT_CONFIRMED, Finding, points
from engram.report.study.cells import Filled, comparisons, scale_text
from engram.report.study.tables import paper_text, percent, trained_text
from engram.studies.schema import Row, Study

CellMap = Mapping[tuple[str, str], Filled]


def table(head: Sequence[str], body: Sequence[str], kind: str = "cards") -> str:
    heads = "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
    return "\n".join([f'<table class="{kind}">', f"<thead><tr>{heads}</tr></thead>", *body, "</table>"])


def study_grid(study: Study, cells: CellMap, runs: str) -> str:
    """One cell of the original in each place: our figure, the paper's below it, difference, badges, links."""
    body, group = ["<tbody>"], ""
    for row in study.rows:
        if row.group and row.group != group:
            body.append(f'<tr><th scope="rowgroup" colspan="{1 + len(study.columns)}">{escape(row.group)}</th></tr>')
        group = row.group
        body.append(_grid_row(study, row, cells, runs))
    return table(["", *study.columns], [*body, "</tbody>"], "grid cards")


def _grid_row(study: Study, row: Row, cells: CellMap, runs: str) -> str:
    notes = [row.backbone if row.backbone != row.group else "", row.note]
    note = "".join(f'<span class="note">{escape(n)}</span>' for n in notes if n)
    parts = [f'<tr><th scope="row">{escape(row.label)}{note}</th>']
    for column in study.columns:
        cell = cells.get((row.label, column))
        inner = cell_html(cell, runs) if cell else ""
        parts.append(f'<td data-label="{escape(column)}">{inner}</td>' if inner else '<td class="empty"></td>')
    return "".join([*parts, "</tr>"])


def cell_html(cell: Filled, runs: str) -> str:
    """Figure, bar, paper and badges at a glance; intervals by source, protocol and records on request."""
    if not cell.answers:
        return _todo(cell)
    assert cell.estimate is not None
    found = cell.estimate
    figure = f'<span class="figure">{percent(found.mean)} <small>± {percent(found.interval)}</small></span>'
    return "".join([figure, _meter(cell), _beside(cell), _badges(cell), _details(cell, runs)])


def _beside(cell: Filled) -> str:
    """The paper's figure and how far ours lies from it, asked alike where that is recorded."""
    beside = against_paper(cell)
    if beside is None:
        return ""
    like = beside.figure
    asked = f" asked so {percent(like.mean)} ± {percent(like.interval)}:" if like else ""
    words = f"{points(beside.gap)}, {escape(beside.word)}"
    return f'<span class="line">paper {paper_text(cell)}<br>ours{asked} {words}</span>'


def _details(cell: Filled, runs: str) -> str:
    assert cell.estimate is not None
    found, lines = cell.estimate, [describe_protocol(cell.protocol)]
    if found.seed_deviation is not None:
        lines.append(f"tasks alone ± {percent(found.task_interval)}, spread of seeds {percent(found.seed_deviation)}")
    others = next(iter(cell.answers.values()))[1:]
    for answer in others if not cell.cell.ask and cell.cell.measure == "accuracy" else ():
        metrics = answer.evaluation.metrics
        figure = f"{percent(metrics['accuracy'])} ± {percent(metrics['interval'])}"
        lines.append(f"{answer.evaluation.protocol['n_query']} queries per class: {figure}")
    told = "".join(f'<span class="line">{escape(line)}</span>' for line in lines)
    return f"<details><summary>protocol, records</summary>{told}{_links(cell, runs)}</details>"


def _todo(cell: Filled) -> str:
    paper = f'<span class="line">paper {paper_text(cell)}</span>' if cell.cell.paper else ""
    command = f'<span class="line"><code>{escape(cell.command)}</code></span>' if cell.command else ""
    return f'<span class="todo">{escape(cell.missing)}</span>{paper}{command}'


def _meter(cell: Filled) -> str:
    """A bar for our figure and a tick for the paper's, on one scale of 0 to 100 %."""
    assert cell.estimate is not None
    marked = ' class="marked"' if cell.protocol.get("slot_order") == "class-order" else ""
    tick = f'<b style="left: {cell.cell.paper:.1f}%"></b>' if cell.cell.paper else ""
    return f'<span class="meter"><i{marked} style="width: {100 * cell.estimate.mean:.1f}%"></i>{tick}</span>'


def badge(words: str, kind: str = "", title: str = "") -> str:
    told = f' title="{escape(title)}"' if title else ""
    return f'<span class="badge {kind}"{told}>{escape(words)}</span>'


def _badges(cell: Filled) -> str:
    assert cell.estimate is not None
    protocol, seeds = cell.protocol, cell.estimate.seeds
    order = str(protocol.get("slot_order", "shuffled"))
    length = protocol.get("stream_length", 1)
    names = ", named" if protocol.get("names") == "named" else ""
    card = cell.first[0].training.get("card") or {}
    parts = [
        badge(scale_text(cell), "good" if cell.scale == "paper" else "warn"),
        badge(order.replace("-", " "), "bad" if order == "class-order" else "", describe_protocol(protocol)),
        badge(f"T = {length}{names}") if length > 1 else "",
        badge("1 query" if protocol.get("n_query") == 1 else f"{protocol.get('n_query')} queries", "", "per class"),
        badge("transductive") if card.get("transductive") else "",
        badge("history erased") if protocol.get("erase_history") else "",
        badge(f"{seeds} seeds", "good") if seeds > 1 else badge("1 seed"),
        _audit_badge(cell),
    ]
    return f"<span>{''.join(parts)}</span>"


def _audit_badge(cell: Filled) -> str:
    if cell.audit is None:
        return badge("no audit")
    leaks = sum(f["verdict"] == "leak" for f in cell.audit.audit)
    words = f"audit: {leaks} leak{'s' if leaks > 1 else ''}" if leaks else "audit: clean"
    return badge(words, "bad" if leaks else "good", f"record {cell.audit.run_id}")


def _links(cell: Filled, runs: str) -> str:
    links = []
    for seed, answers in cell.answers.items():
        path = record_path(Path(runs), answers[0].record).as_posix()
        name = f"seed {seed}" if len(cell.answers) > 1 else "record"
        links.append(f'<a href="{escape(path)}">{name}</a>')
    return f'<span class="line">{" ".join(links)}</span>'


def comparisons_html(study: Study, cells: CellMap) -> str:
    """Paired differences of the study; "" where no two cells are recorded."""
    body = []
    for pair, column, first, second, found in comparisons(study, cells):
        kind = "same tasks, paired" if found.paired else "different tasks"
        strength = "" if found.word == "inside the noise" else "good" if found.mean > 0 else "bad"
        trained = trained_text(first, second)
        body.append(
            f'<tr><th scope="row">{escape(pair.first)} <span class="note">minus {escape(pair.second)}</span></th>'
            f'<td data-label="Column">{escape(column)}</td><td data-label="Points">{points(found)}</td>'
            f'<td data-label="Reading">{badge(found.word, strength)}{badge(kind)}'
            f"{badge(trained, '', 'iterations') if trained else ''}</td></tr>"
        )
    if not body:
        return ""
    heading = '<h3 class="part">Differences, in points</h3>'
    return heading + table(
        ("First minus second", "Column", "Mean ± 95 % interval", "Reading"), ["<tbody>", *body, "</tbody>"]
    )


def claims_html(found: Sequence[Finding]) -> str:
    kinds = {CONFIRMED: "good", NOT_CONFIRMED: "bad"}
    body = [
        f'<tr><td>{escape(f.claim.text)}<span class="note">{escape(f.claim.where)}</span></td>'
        f'<td class="verdict {kinds.get(f.verdict, "none")}" data-label="Verdict">{f.verdict}</td>'
        f'<td data-label="What we find">{_code(f.words)}</td></tr>'
        for f in found
    ]
    return table(("The paper claims", "Verdict", "What we find"), ["<tbody>", *body, "</tbody>"], "claims cards")


def _code(words: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(words))


def called(study: Study) -> str:
    """What a command calls it."""
    return study.where if study.own else study.name.replace("_", "-")


def overview_html(studies: Sequence[Study], cells: Mapping[str, CellMap]) -> str:
    body = []
    for study in studies:
        found = list(cells[study.name].values())
        done = [c for c in found if c.answers]
        full = sum(c.scale == "paper" for c in done)
        share = 100 * len(done) / len(found)
        bar = f'<span class="meter"><i style="width: {share:.0f}%"></i></span>'
        body.append(
            f'<tr><th scope="row">{escape(study.title)}</th>'
            f'<td data-label="Filled">{len(done)} of {len(found)}{bar}</td>'
            f'<td data-label="Full schedule, short">{full}, {len(done) - full}</td>'
            f'<td data-label="Command"><code>engram reproduce {escape(called(study))}</code></td></tr>'
        )
    return table(("", "Filled", "Full schedule, short", "Command"), ["<tbody>", *body, "</tbody>"], "grid cards")
