"""Audits: one in a terminal and as a figure, the newest of each recipe on pages of the docs.

Findings come as the run record holds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from engram.card import system_name
from engram.errors import EngramError
from engram.files import check_overwritable
from engram.ledger import Ledger, RunRecord
from engram.protocol import describe_protocol
from engram.recipes import recipe_names
from engram.report.rows import dataset_name, linked
from engram.report.svg import INK, SERIES, TEXT_SIZE, new_figure, style_axes, to_svg
from engram.report.table import Column, Opened, Table, folded, headed
from engram.spellings import name_today

Finding = Mapping[str, Any]
STYLES = {"clean": "green", "declared": "yellow", "leak": "bold red", "not applicable": "dim"}
COLOURS = {"clean": SERIES[2], "declared": SERIES[4], "leak": SERIES[1]}
HATCHES = {"clean": "", "declared": "||", "leak": "///"}
FLOOR = 1e-8
"""left end of the figure's axis; smaller effects are drawn there"""
CAPTION = "Audit"
"""what the description of a figure begins with"""
NOTE = (
    "Figures alone: the largest change of any probability. With ±: a difference of accuracies in points and its 99.9 % "
    "interval. Empty: not asked, or not applicable, as for a method without a memory."
)
MATRIX_NOTE = (
    "A leak is a dependence that the method's card does not declare, or through which query order reveals the label. "
    "Numbers in brackets: in how many audits, where not in all."
)
NO_AUDITS = "No audits are recorded yet."
EVERY = "all"
FEW_LINES = 3
"""audits that a method's page shows unfolded"""
TELLING = (
    "history erased", "history permuted", "noise, class order", "class order minus shuffled", "gain from the past",
    "own past against foreign",
)  # fmt: skip
"""probes whose effects the overview shows; the first says whether the streams read the memory at all"""


def effect_text(finding: Finding) -> str:
    """``0.898``, ``3e-16``, ``+34.3 ± 3.8 points``, or nothing where the probe does not apply."""
    effect, bound = finding["effect"], finding["bound"]
    if effect is None or bound is None:
        return ""
    if finding["unit"] == "accuracy":
        return f"{100 * effect:+.1f} ± {100 * bound:.1f} points"
    figure = f"{effect:.3f}" if effect >= 0.001 else f"{effect:.0e}" if effect else "0"
    return figure if finding["kind"] == "exact" else f"{figure} (noise up to {bound:.3f})"


def counts_text(findings: Sequence[Finding]) -> str:
    """``9 clean, 3 declared, 2 leak``"""
    counts = {v: sum(f["verdict"] == v for f in findings) for v in STYLES}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


COLUMNS: tuple[Column[Finding], ...] = (
    Column("Probe", lambda f: f["probe"], places=("docs",)),
    Column("Question", lambda f: f["question"], places=("terminal",)),
    Column("Effect", effect_text, right=True),
    Column("Verdict", lambda f: f["verdict"], places=("terminal",), style=lambda f: STYLES[f["verdict"]]),
    Column("Verdict", lambda f: "**leak**" if f["verdict"] == "leak" else f["verdict"], places=("docs",)),
    Column("Declared", lambda f: "yes" if f["declared"] else "no"),
    Column("Detail", lambda f: f["detail"], places=("docs",)),
)


def findings_table(findings: Sequence[Finding], place: str, title: str = "") -> Table[Finding]:
    """For a ``terminal``, or for a page of the ``docs`` with the details."""
    return Table(COLUMNS, findings, place, title)


def audit_figure(findings: Sequence[Finding], title: str = "") -> str:
    """Horizontal bars of the effects on a logarithmic axis; a tick on each marks what it had to stay below."""
    if not findings:
        raise EngramError("the audit has no findings to draw: run engram audit first")
    figure = new_figure(560, 70 + 22 * len(findings) + (20 if title else 0))
    axes = figure.subplots()
    style_axes(axes, "effect on a probability, or on accuracy (logarithmic)", "")
    axes.set_xscale("log")
    for row, finding in enumerate(findings):
        _bar(axes, row, finding)
    axes.set(xlim=(FLOOR, 30), ylim=(len(findings) - 0.4, -0.6))
    axes.set_xticks([1e-8, 1e-6, 1e-4, 1e-2, 1], ["1e-8", "1e-6", "1e-4", "0.01", "1"])
    axes.minorticks_off()
    axes.set_yticks(range(len(findings)), [f["probe"] for f in findings])
    axes.grid(False, axis="y")
    if title:
        figure.suptitle(title, color=INK, fontsize=TEXT_SIZE)
    return to_svg(figure, f"{CAPTION}{f' of {title}' if title else ''}: {counts_text(findings)}")


def _bar(axes: Axes, row: int, finding: Finding) -> None:
    """A bar with its bound and its verdict in words; colour and hatch say the same again."""
    verdict: str = finding["verdict"]
    place: dict[str, Any] = {"va": "center", "fontsize": TEXT_SIZE - 2}
    if finding["effect"] is None:
        axes.text(FLOOR * 1.4, row, verdict, color=INK, alpha=0.7, **place)
        return
    size, bound = max(abs(finding["effect"]), FLOOR * 1.2), max(finding["bound"], FLOOR)
    look: dict[str, Any] = {
        "color": COLOURS[verdict],
        "alpha": 0.8,
        "hatch": HATCHES[verdict],
        "edgecolor": INK,
        "lw": 0.4,
    }
    axes.barh(row, size - FLOOR, 0.62, FLOOR, **look)
    axes.plot([bound, bound], [row - 0.42, row + 0.42], color=INK, linewidth=1.6)
    axes.text(
        max(size, bound) * 1.5, row, verdict, color=INK, weight="bold" if verdict == "leak" else "normal", **place
    )


def check_figure(path: Path | None) -> None:
    """Refuse a place the figure could not be written to, before the audit is run."""
    if path:
        check_overwritable(path, ".svg", f'aria-label="{CAPTION}')
    if path and not path.parent.is_dir():
        raise EngramError(f"the figure {path} cannot be written: there is no folder {path.parent}")


def newest_audits(records: Sequence[RunRecord], name: str = EVERY) -> list[RunRecord]:
    """The newest finished audit of each method, recipe and kind of stream (named or not); ``name`` keeps one recipe."""
    newest = Ledger(records).audits(lambda r: (r.method, r.recipe_today, _streams(r)))
    return [newest[key] for key in sorted(newest) if name_today(name) in (EVERY, key[1])]


def _streams(record: RunRecord) -> str:
    return str(record.audit_protocol.get("names", "anonymous"))


def verdict_text(audit: RunRecord) -> str:
    """``clean``, ``clean, declared: company; class balance``, ``**2 leaks**``: what a short line says of an audit."""
    named = {v: [f["probe"] for f in audit.audit if f["verdict"] == v] for v in ("leak", "declared")}
    leaks = len(named["leak"])
    words = f"**{leaks} leak{'s' if leaks > 1 else ''}**" if leaks else "clean"
    return f"{words}, declared: {'; '.join(named['declared'])}" if named["declared"] else words


def audit_section(name: str, records: Sequence[RunRecord], runs: str) -> str:
    """What stands between the markers: a line for each system, all newest audits folded below; or one recipe's."""
    audits = newest_audits(records, name)
    if name == EVERY:
        summary = f"All {len(audits)} audits, with the effects that tell a memory by slot"
        return Opened(_matrix(audits), _overview(audits, runs), summary).markdown()
    return "\n\n".join(_one_audit(r, runs) for r in audits) or NO_AUDITS


def audit_sections(records: Sequence[RunRecord]) -> set[str]:
    """Names of all sections there are."""
    return {EVERY, *recipe_names(), *(r.recipe_name for r in records if r.kind == "audit")}


def audit_lines(method: str, records: Sequence[RunRecord], runs: str) -> str:
    """The newest audit of each recipe of a method, a line each, folded where they are many; "" where there is none."""
    audits = [r for r in newest_audits(records) if r.method == method]
    lines = [f"- {linked(f'`{r.recipe_name}`', r, runs)}, {_streams(r)} streams: {verdict_text(r)}" for r in audits]
    leaks = sum(any(f["verdict"] == "leak" for f in r.audit) for r in audits)
    told = f"{len(audits)} recipes audited, {leaks or 'none'} with a leak" if len(audits) > 1 else "one recipe audited"
    title, text = f"Audit ([what is asked](../audit.md)): {told}.", "\n".join(lines)
    text = folded("Verdict on each recipe", text) if len(lines) > FEW_LINES else text
    return f"{title}\n\n{text}" if lines else ""


def _matrix(audits: Sequence[RunRecord]) -> Table[list[RunRecord]]:
    """A line for each system: how many audits, and the probes that were not clean in words."""
    systems: dict[str, list[RunRecord]] = {}
    for record in audits:
        systems.setdefault(system_name(record.method), []).append(record)

    def probes(rows: list[RunRecord], verdict: str) -> str:
        found = Counter(f["probe"] for r in rows for f in r.audit if f["verdict"] == verdict)
        return "; ".join(f"{p} ({n})" if n < len(rows) else p for p, n in found.items())

    def result(rows: list[RunRecord]) -> str:
        leaks = sum(verdict_text(r).startswith("**") for r in rows)
        return f"**leak** in {leaks} of {len(rows)}" if leaks else "clean"

    columns: tuple[Column[list[RunRecord]], ...] = (
        Column("System", lambda rows: system_name(rows[0].method)),
        Column("Audits", lambda rows: str(len(rows)), right=True),
        Column("Verdict", result),
        Column("Leaks found by", lambda rows: probes(rows, "leak")),
        Column("Dependences its card declares", lambda rows: probes(rows, "declared")),
    )
    return Table(columns, list(systems.values()), note=MATRIX_NOTE)


def _overview(audits: Sequence[RunRecord], runs: str) -> Table[RunRecord]:
    """A line for each audit: how many findings of each verdict, and the effects that tell a slot memory."""

    def title(record: RunRecord) -> str:
        named = ", named" if _streams(record) == "named" else ""
        return f"{linked(f'`{record.recipe_name}`', record, runs)}{named}"

    def effect(probe: str) -> Column[RunRecord]:
        def found(record: RunRecord) -> str:
            told = (effect_text(f).removesuffix(" points") for f in record.audit if f["probe"] == probe)
            return next(told, "")

        return Column(probe.capitalize(), found, right=True)

    findings = Column[RunRecord]("Findings", lambda record: counts_text(record.audit))
    columns = (Column("Audit", title), findings, *map(effect, TELLING))
    rows: list[RunRecord | str] = headed(audits, lambda record: system_name(record.method))
    return Table(columns, rows, note=NOTE, empty=NO_AUDITS)


def _one_audit(record: RunRecord, runs: str) -> str:
    protocol = record.audit_protocol
    origin = f"checkpoint of run {record.trained_by}" if record.trained_by else "not trained"
    table = folded(f"All {len(record.audit)} findings", findings_table(record.audit, "docs").markdown())
    return (
        f"### {system_name(record.method)}, `{record.recipe_name}`, {_streams(record)} streams\n\n"
        f"{counts_text(record.audit)}. {dataset_name(protocol)}, {describe_protocol(protocol, markdown=True)}, "
        f"{protocol.get('n_sequences', '?')} streams; {origin}; {record.device}; "
        f"record {linked(record.run_id, record, runs)}.\n\n{table}"
    )
