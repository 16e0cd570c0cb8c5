"""One cell of a study in the report: figure, bar, paper and badges at a glance; the rest on request."""

from __future__ import annotations

from html import escape

from engram.protocol import describe_protocol
from engram.report.cells import Filled, against_paper, scale_text
from engram.report.rows import file_of, plus_minus
from engram.report.table import percent


def cell_html(cell: Filled, runs: str) -> str:
    """Our figure, the paper's below it, difference, badges, links; or what to do."""
    paper = f"paper {plus_minus(cell.cell.paper, cell.cell.interval)}" if cell.cell.paper else ""
    if cell.estimate is None:
        lines = line(paper) + (line(f"<code>{escape(cell.command)}</code>") if cell.command else "")
        return f'<span class="todo">{escape(cell.missing)}</span>{lines}'
    figure = f"{percent(cell.estimate.mean)} <small>± {percent(cell.estimate.interval)}</small>"
    if beside := against_paper(cell):
        asked = f" asked so {percent(beside.figure.mean, beside.figure.interval)}:" if beside.other else ""
        paper += f"<br>ours{asked} {beside.gap.points}, {escape(beside.word)}"
    marked = ' class="marked"' if cell.protocol.get("slot_order") == "class-order" else ""
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
