"""An audit as a terminal table, as Markdown and as a figure; findings come as the run record holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from rich.table import Table

from engram.errors import EngramError
from engram.report.columns import Column, markdown, shown, terminal
from engram.report.svg import INK, SERIES, TEXT_SIZE, new_figure, style_axes, to_svg

Finding = Mapping[str, Any]
STYLES = {"clean": "green", "declared": "yellow", "leak": "bold red", "not applicable": "dim"}
COLOURS = {"clean": SERIES[2], "declared": SERIES[4], "leak": SERIES[1]}
HATCHES = {"clean": "", "declared": "||", "leak": "///"}
FLOOR = 1e-8
"""left end of the figure's axis; smaller effects are drawn there"""
NOTE = (
    "Effect: exact probes, the largest change of any probability, against a tolerance; statistical probes, a "
    "difference of accuracies in points ± its 99.9 % interval. A leak is a dependence that the method's card does not "
    "declare, or that lets the order of queries tell their labels."
)


def effect_text(finding: Finding) -> str:
    """``0.898``, ``3e-16``, ``+34.3 ± 3.8 points``, or nothing where the probe does not apply."""
    effect, bound = finding["effect"], finding["bound"]
    if effect is None or bound is None:
        return ""
    if finding["unit"] == "accuracy":
        return f"{100 * effect:+.1f} ± {100 * bound:.1f} points"
    figure = f"{effect:.3f}" if effect >= 0.001 else f"{effect:.0e}" if effect else "0"
    return figure if finding["kind"] == "exact" else f"{figure} (noise up to {bound:.3f})"


def _verdict(finding: Finding) -> str:
    return str(finding["verdict"])


COLUMNS: tuple[Column[Finding], ...] = (
    Column("Probe", lambda f: f["probe"], tables=("docs",)),
    Column("Question", lambda f: f["question"]),
    Column("Effect", effect_text, right=True),
    Column("Verdict", _verdict, tables=("terminal",)),
    Column("Verdict", lambda f: f"**{_verdict(f)}**" if _verdict(f) == "leak" else _verdict(f), tables=("docs",)),
    Column("Declared", lambda f: "yes" if f["declared"] else "no"),
    Column("Detail", lambda f: f["detail"], tables=("docs",)),
)
"""of a ``terminal`` and of a page of the ``docs``"""


def audit_table(findings: Sequence[Finding], title: str = "Audit") -> Table:
    """For a terminal: question, effect, verdict, and whether the card declares the dependence."""
    columns = shown(COLUMNS, findings, "terminal")
    return terminal(title, columns, findings, {"Verdict": lambda f: STYLES[_verdict(f)]})


def counts_text(findings: Sequence[Finding]) -> str:
    """``9 clean, 3 declared, 2 leak``"""
    counts = {v: sum(f["verdict"] == v for f in findings) for v in STYLES}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def findings_table(findings: Sequence[Finding]) -> str:
    """For a page of the docs, with the details."""
    return markdown(COLUMNS, findings, "docs")


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
    return to_svg(figure, f"Audit{f' of {title}' if title else ''}: {counts_text(findings)}")


def check_figure(path: Path | None) -> None:
    """Refuse a place the figure could not be written to, before the audit is run."""
    if path is None:
        return
    if path.suffix != ".svg":
        raise EngramError(f"the figure {path} cannot be drawn: its name must end in .svg")
    if not path.parent.is_dir():
        raise EngramError(f"the figure {path} cannot be written: there is no folder {path.parent}")


def write_figure(path: Path, findings: Sequence[Finding], title: str = "") -> Path:
    path.write_text(audit_figure(findings, title), encoding="utf-8")
    return path


def _bar(axes: Axes, row: int, finding: Finding) -> None:
    """A bar with its bound and its verdict in words; colour and hatch say the same again."""
    verdict = finding["verdict"]
    if finding["effect"] is None:
        axes.text(FLOOR * 1.4, row, verdict, color=INK, alpha=0.7, va="center", fontsize=TEXT_SIZE - 2)
        return
    size = max(abs(finding["effect"]), FLOOR * 1.2)
    bound = max(finding["bound"], FLOOR)
    axes.barh(
        row, size - FLOOR, 0.62, FLOOR, color=COLOURS[verdict], alpha=0.8, hatch=HATCHES[verdict], edgecolor=INK, lw=0.4
    )
    axes.plot([bound, bound], [row - 0.42, row + 0.42], color=INK, linewidth=1.6)
    end = max(size, bound) * 1.5
    weight = "bold" if verdict == "leak" else "normal"
    axes.text(end, row, verdict, color=INK, va="center", weight=weight, fontsize=TEXT_SIZE - 2)
